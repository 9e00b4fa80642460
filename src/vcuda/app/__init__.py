"""``vcuda app``: the package in a browser, for people who do not program.

``server.py`` has the addresses, ``guard.py`` says who may ask, ``jobs.py`` runs fits as ``vcuda fit`` in processes
of their own, and ``answers.py`` answers questions about tables and runs, in the processes of ``workers.py``. The server
itself imports nothing heavy. The page is built from ``frontend/`` into ``static/``.
"""
