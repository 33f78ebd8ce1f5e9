"""Real federation: the composition that `fedwca bench` simulates, with the clients on machines of their own.

`fedwca.deploy.session` and `fedwca.deploy.client` know no network; they make and take `Parcel`s.
`fedwca.deploy.flower` carries parcels over Flower.
"""
