"""Test the endpoint of an object store for `tailrace doctor --store URL`, and say which of its promises it breaks.

A Delta table at a URL is as right as its server: a version of the table is whatever object was created first
under the version's name. These checks write small keys below the store's prefix, beside the table, and delete them.
"""
