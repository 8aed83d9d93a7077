"""The paper's other systems on one model: search against samplers, particles and mean field."""
