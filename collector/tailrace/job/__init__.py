"""Make one store and one certificate of what the nodes of a job collected."""
