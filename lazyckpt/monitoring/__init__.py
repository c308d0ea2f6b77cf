"""How a run goes: its metrics, its progress, and which stage is slow."""
