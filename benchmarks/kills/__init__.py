"""The kill curve: what is left of a traced data loader that is killed, beside what the loader itself wrote down."""
