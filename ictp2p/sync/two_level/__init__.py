"""What every policy has in common: steps inside a cluster, rounds between clusters, and what happens when one fails."""
