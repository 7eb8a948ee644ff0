"""Merge the stores of a job's nodes into one store, and certify the job."""
