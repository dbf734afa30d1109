"""The commands of `jaxiou`, a module each; `cli` puts them together."""
