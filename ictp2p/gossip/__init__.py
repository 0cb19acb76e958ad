"""Who is alive, who leads, what each link carries: eventually consistent, and never trusted for safety.

`swim` is membership, used once inside each cluster and once between clusters; `election` is who speaks for a
cluster; `links` is what the connections between clusters measure. All pure machines.
"""
