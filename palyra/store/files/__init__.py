"""Files next to the journal: artifacts, checkpoints, skills, compiled modules, the data directory.

`disk`, `private_files` and `free_space` are the access to the disk that the others use.
"""
