"""Federations over Flower: transport, TLS, node authentication and its simulation. Needs ``pip install 'fedwca[flower]'``.

Only this package imports flwr; its server and node programs are started as processes.
"""
