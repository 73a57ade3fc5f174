;; The kind "call": the host asks `alloc` for room, writes the input there and calls `palyra_call`,
;; which answers with the address of its output in the upper 32 bits and its size in the lower.
;;
;; Input:  {"tool":"echo","arguments":{"text":"hello"}}
;; Output: {"result":{"tool":"echo","arguments":{"text":"hello"}}}
(module
  (memory (export "memory") 1)

  ;; {"result":            the input is written right behind it, and } behind that
  (data (i32.const 1014) "{\22result\22:")

  ;; One call, one store: room is given out once and never taken back.
  (func (export "alloc") (param $size i32) (result i32)
    (local $missing i32)
    (local.set $missing
      (i32.sub (i32.add (local.get $size) (i32.const 2048)) (i32.mul (memory.size) (i32.const 65536))))
    (if (i32.gt_s (local.get $missing) (i32.const 0))
      (then (drop (memory.grow (i32.div_s (i32.add (local.get $missing) (i32.const 65535)) (i32.const 65536))))))
    (i32.const 1024))

  (func (export "palyra_call") (param $ptr i32) (param $size i32) (result i64)
    (i32.store8 (i32.add (local.get $ptr) (local.get $size)) (i32.const 125)) ;; }
    (i64.or
      (i64.shl (i64.const 1014) (i64.const 32))
      (i64.extend_i32_u (i32.add (local.get $size) (i32.const 11))))))
