"""Deployments over Flower: transport, TLS, node authentication, simulation. Needs ``pip install 'fedwca[flower]'``.

Only this package imports flwr; Flower's server and node programs are started as processes.
"""
