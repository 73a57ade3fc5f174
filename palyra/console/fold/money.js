// Money from micro-dollars; a sum above zero is never shown as zero.  Pure.

/** Four digits for tables: `$0.3127`; `<$0.0001` for less. */
export function exact(micros) {
  if (micros > 0 && micros < 50) return "<$0.0001";
  return `$${(micros / 1_000_000).toFixed(4)}`;
}

/** Two digits for headlines: `$1.84`; more where two would be zero. */
export function headline(micros) {
  if (micros > 0 && micros < 5_000) return exact(micros);
  return `$${(micros / 1_000_000).toFixed(2)}`;
}
