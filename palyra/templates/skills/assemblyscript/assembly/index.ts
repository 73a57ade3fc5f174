// The kind "call".  Input: {"tool":"reverse","arguments":{"text":"abc"}}; output: {"result":"cba"}.

/** Room for the input: one call, one store, so it is never taken back. */
export function alloc(size: i32): i32 {
  return heap.alloc(size) as i32;
}

export function palyra_call(ptr: i32, size: i32): i64 {
  const input = String.UTF8.decodeUnsafe(ptr as usize, size as usize);
  const output = String.UTF8.encode(answer(input));
  return ((changetype<usize>(output) as i64) << 32) | (output.byteLength as i64);
}

function answer(input: string): string {
  const key = '"text":"';
  const start = input.indexOf(key);
  if (start < 0) return '{"error":"text is missing"}';
  let reversed = "";
  for (let at = start + key.length; at < input.length && input.charAt(at) != '"'; ) {
    const end = at + lengthOf(input, at);
    reversed = input.substring(at, end) + reversed;
    at = end;
  }
  return '{"result":"' + reversed + '"}';
}

/** How many units the character at this place has: an escape and a pair stay whole. */
function lengthOf(text: string, at: i32): i32 {
  if (text.charAt(at) == "\\") return text.charAt(at + 1) == "u" ? 6 : 2;
  const unit = text.charCodeAt(at);
  return unit >= 0xd800 && unit < 0xdc00 ? 2 : 1;
}
