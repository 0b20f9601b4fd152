"""Who is in which cluster, and the tables of clusters."""
