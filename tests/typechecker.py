"""The type checker of the import hook: beartype, for which an int is a float as for mypy."""

from beartype import BeartypeConf, beartype

check = beartype(conf=BeartypeConf(is_pep484_tower=True))
