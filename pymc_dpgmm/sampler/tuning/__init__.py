"""Which moves a draw makes, and how that is learnt."""
