"""How far log H on nodes is from the integral that it stands for."""
