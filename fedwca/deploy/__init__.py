"""Deployment: runs the composition that `fedwca bench` simulates with clients on separate machines.

`fedwca.deploy.session` and `fedwca.deploy.client` do no networking; they produce and consume `Parcel`s.
`fedwca.deploy.flower` transports parcels over Flower.
"""
