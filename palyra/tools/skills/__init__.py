"""Skills: installed WASM packages and the tools they provide."""
