"""What `tailrace doctor` looks at: this host and one configuration, and what to change on either.

A check is a function of a `Host` that yields `Finding`s; `examine` runs them all. No check needs
root, changes anything, leaves a file behind or sends a byte to a collector that runs.
"""
