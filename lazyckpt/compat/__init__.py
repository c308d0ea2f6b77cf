"""Drop-ins for other libraries: one changed import line moves code on them here."""
