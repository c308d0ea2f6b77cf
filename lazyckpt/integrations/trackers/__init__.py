"""States in experiment trackers: `log_state` next to your metrics, `load_state` to resume.

A tracker may change logged values. With these functions every tracker returns the JSON string of a
state unchanged, whatever its length (below 128 KB in DVCLive), its ints and its floats:

| tracker     | where the state is                 | effect on a dict, or elsewhere             |
| ----------- | ---------------------------------- | ------------------------------------------ |
| MLflow      | artifact `lazyckpt/<step>.json`    | a param is cut off at 6,000 characters, a  |
|             |                                    | tag at 8,000                               |
| W&B         | file `lazyckpt/<step>.json`        | 2.0 becomes 2, an int beyond 64 bits a     |
|             |                                    | float, an array a histogram; a step that   |
|             |                                    | has passed is dropped                      |
| trackio     | text of the metric `lazyckpt`      | an int beyond 64 bits drops the whole      |
|             |                                    | metric, with a warning                     |
| Aim         | `Text` of the sequence `lazyckpt`  | an int beyond 64 bits is an OverflowError, |
|             |                                    | a tuple becomes a list                     |
| TensorBoard | text with the tag `lazyckpt`       | a reader keeps 10 of them                  |
| DVCLive     | row of `plots/metrics/lazyckpt.tsv`| a param has no steps; `Live()` without     |
|             |                                    | `resume=True` removes the earlier history  |

Extras: `mlflow`, `wandb`, `trackio`, `aim`, `tensorboard`, `dvclive`.
"""

from __future__ import annotations

from lazyckpt.integrations.trackers.kinds import NoState
from lazyckpt.integrations.trackers.states import load_state, log_state

__all__ = ["NoState", "load_state", "log_state"]
