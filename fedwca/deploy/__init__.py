"""Real federation: the composition that `fedwca bench` simulates, with the clients on machines of their own.

`fedwca.deploy.server` and `fedwca.deploy.client` know no network: they make and take `fedwca.deploy.protocol.Parcel`.
`fedwca.deploy.flower` carries parcels over Flower.
"""
