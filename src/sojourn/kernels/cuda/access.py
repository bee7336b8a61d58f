"""How the threads of a warp read and write memory, in Triton: building blocks of the recursions.

What `tl.load` and `tl.store` do, said in the instructions themselves: for each of those the
compiler looks through most of a kernel for how threads are best laid out, which is known here; with
a hundred of them that took most of its time.  Each has a plain form for Triton's interpreter.
"""

from __future__ import annotations

import triton
import triton.language as tl

UNALIGNED = [
    *("matrices", "start", "table", "gain", "shift", "missing", "messages", "predictions"),
    *("origins", "index", "offsets", "order", "first", "pairs", "starts"),
]
"""Arguments of the recursions whose alignment nobody needs to know: they are read by what says
itself how many numbers it reads.  So that none is compiled again for others."""


@triton.jit
def row_of(table, missing, symbol, n_rows, stride):
    """Point at a row of the emission table, or at the one for a missing observation."""
    return tl.where(symbol < n_rows, table + symbol.to(tl.int64) * stride, missing + symbol * 0)


@triton.jit
def load_one(pointer, mask, INTERPRET: tl.constexpr):
    """Load a number; zero where masked."""
    if INTERPRET:
        return tl.load(pointer, mask=mask, other=0.0)
    return tl.inline_asm_elementwise(
        """
        {
            .reg .pred p;
            setp.ne.s32 p, $2, 0;
            mov.b32 $0, 0;
            @p ld.global.b32 $0, [$1];
        }
        """,
        "=f,l,r",
        [pointer.to(tl.int64), mask.to(tl.int32)],
        dtype=tl.float32,
        is_pure=False,
        pack=1,
    )


def _loads(n: int, *, scaled: bool) -> str:
    """Write down what `load_sixteenths` does, with numbers to multiply by if `scaled`."""
    left, lines = n + 1, [".reg .pred p;"]
    if scaled:
        lines += [".reg .f32 e;", f"ld.global.f32 e, [${n + 2}];"]
        lines += [f"setp.ne.s32 p, ${n + 3}, 0;", "selp.f32 e, 0f3F800000, e, p;"]
    for i in range(n):
        lines += [f"setp.gt.s32 p, ${left}, {16 * i};", f"mov.b32 ${i}, 0;"]
        lines += [f"@p ld.global.b32 ${i}, [${n}+{64 * i}];"]
    if scaled:
        lines += [f"mul.f32 ${i}, ${i}, e; mul.f32 ${i}, ${i}, ${n + 4 + i};" for i in range(n)]
    return "{ " + " ".join(lines) + " }"


_LOAD_ONE, _LOAD_TWO, _LOAD_THREE = (tl.constexpr(_loads(n, scaled=False)) for n in (1, 2, 3))
_SCALE_ONE, _SCALE_TWO, _SCALE_THREE = (tl.constexpr(_loads(n, scaled=True)) for n in (1, 2, 3))


@triton.jit
def assembled(ASM: tl.constexpr, OF: tl.constexpr, arguments, N: tl.constexpr, PURE: tl.constexpr):
    """Return up to three numbers that instructions make of arguments, of types that are given."""
    if N == 1:
        made = (
            tl.inline_asm_elementwise(
                ASM, "=&f," + OF, arguments, dtype=tl.float32, is_pure=PURE, pack=1
            ),
        )
    elif N == 2:
        made = tl.inline_asm_elementwise(
            ASM,
            "=&f,=&f," + OF,
            arguments,
            dtype=(tl.float32, tl.float32),
            is_pure=PURE,
            pack=1,
        )
    else:
        made = tl.inline_asm_elementwise(
            ASM,
            "=&f,=&f,=&f," + OF,
            arguments,
            dtype=(tl.float32, tl.float32, tl.float32),
            is_pure=PURE,
            pack=1,
        )
    return made


@triton.jit
def load_sixteenths(pointer, n_left, by, N: tl.constexpr, INTERPRET: tl.constexpr):
    """Load up to three numbers that are sixteen apart; zero where fewer than that are left.

    They are multiplied `by` others, if there are any: an address, of a number that all of them are
    multiplied by; whether they are not, one or zero; and a number for each.
    """
    if INTERPRET:
        found = ()
        for i in tl.static_range(N):
            value = tl.load(pointer + 16 * i, mask=n_left > 16 * i, other=0.0)
            if len(by) > 0:
                value *= tl.where(by[1] != 0, 1.0, tl.load(by[0])) * by[2 + i]
            found = found + (value,)  # type: ignore[assignment]
    elif len(by) > 0:
        many: tl.constexpr = _SCALE_THREE if N == 3 else (_SCALE_TWO if N == 2 else _SCALE_ONE)
        of: tl.constexpr = "l,r,l,r" + ",f" * N
        own = (pointer.to(tl.int64), n_left, by[0].to(tl.int64)) + by[1:]
        found = assembled(many, of, own, N, False)
    else:
        some: tl.constexpr = _LOAD_THREE if N == 3 else (_LOAD_TWO if N == 2 else _LOAD_ONE)
        found = assembled(some, "l,r", (pointer.to(tl.int64), n_left), N, False)
    return found


@triton.jit
def store_one(pointer, value, mask, INTERPRET: tl.constexpr):
    """Store a number."""
    if INTERPRET:
        tl.store(pointer, value, mask=mask)
    else:
        tl.inline_asm_elementwise(
            """
            {
                .reg .pred p;
                setp.ne.s32 p, $3, 0;
                @p st.global.f32 [$1], $2;
                mov.b32 $0, 0;
            }
            """,
            "=r,l,f,r",
            [pointer.to(tl.int64), value, mask.to(tl.int32)],
            dtype=tl.int32,
            is_pure=False,
            pack=1,
        )


@triton.jit
def load_whole(pointer, INTERPRET: tl.constexpr):
    """Load a whole number of 8, 32 or 64 bits."""
    kind: tl.constexpr = pointer.dtype.element_ty
    if INTERPRET:
        value = tl.load(pointer)
    elif kind == tl.int64:
        value = tl.inline_asm_elementwise(
            "ld.global.s64 $0, [$1];",
            "=l,l",
            [pointer.to(tl.int64)],
            dtype=tl.int64,
            is_pure=False,
            pack=1,
        )
    else:
        bits: tl.constexpr = "s8" if kind == tl.int8 else "s32"
        asm: tl.constexpr = "ld.global." + bits + " $0, [$1];"
        value = tl.inline_asm_elementwise(
            asm,
            "=r,l",
            [pointer.to(tl.int64)],
            dtype=tl.int32,
            is_pure=False,
            pack=1,
        )
    return value


@triton.jit
def store_flag(pointer, flag, mask, INTERPRET: tl.constexpr):
    """Store one or zero in eight bits."""
    if INTERPRET:
        tl.store(pointer, flag.to(tl.int8), mask=mask)
    else:
        tl.inline_asm_elementwise(
            """
            {
                .reg .pred p;
                setp.ne.s32 p, $3, 0;
                @p st.global.u8 [$1], $2;
                mov.b32 $0, 0;
            }
            """,
            "=r,l,r,r",
            [pointer.to(tl.int64), flag.to(tl.int32), mask.to(tl.int32)],
            dtype=tl.int32,
            is_pure=False,
            pack=1,
        )


@triton.jit
def load_four(pointer, mask, INTERPRET: tl.constexpr):
    """Load four numbers that lie side by side, at a multiple of four; zero where masked."""
    if INTERPRET:
        return (
            tl.load(pointer, mask=mask, other=0.0),
            tl.load(pointer + 1, mask=mask, other=0.0),
            tl.load(pointer + 2, mask=mask, other=0.0),
            tl.load(pointer + 3, mask=mask, other=0.0),
        )
    return tl.inline_asm_elementwise(
        """
        {
            .reg .pred p;
            setp.ne.s32 p, $5, 0;
            mov.b32 $0, 0; mov.b32 $1, 0; mov.b32 $2, 0; mov.b32 $3, 0;
            @p ld.global.v4.b32 {$0, $1, $2, $3}, [$4];
        }
        """,
        "=r,=r,=r,=r,l,r",
        [pointer.to(tl.int64), mask.to(tl.int32)],
        dtype=(tl.float32, tl.float32, tl.float32, tl.float32),
        is_pure=False,
        pack=1,
    )


@triton.jit
def store_four(pointer, values, mask, INTERPRET: tl.constexpr):
    """Store four numbers side by side, at a multiple of four."""
    if INTERPRET:
        for i in tl.static_range(4):
            tl.store(pointer + i, values[i], mask=mask)
    else:
        tl.inline_asm_elementwise(
            """
            {
                .reg .pred p;
                setp.ne.s32 p, $6, 0;
                @p st.global.v4.f32 [$1], {$2, $3, $4, $5};
                mov.b32 $0, 0;
            }
            """,
            "=r,l,f,f,f,f,r",
            [pointer.to(tl.int64), values[0], values[1], values[2], values[3], mask.to(tl.int32)],
            dtype=tl.int32,
            is_pure=False,
            pack=1,
        )


@triton.jit
def load_two(pointer, INTERPRET: tl.constexpr):
    """Load two numbers that lie side by side, at a multiple of two."""
    if INTERPRET:
        two = (tl.load(pointer), tl.load(pointer + 1))
    elif pointer.dtype.element_ty == tl.float64:
        two = tl.inline_asm_elementwise(
            "ld.global.v2.f64 {$0, $1}, [$2];",
            "=d,=d,l",
            [pointer.to(tl.int64)],
            dtype=(tl.float64, tl.float64),
            is_pure=False,
            pack=1,
        )
    else:
        two = tl.inline_asm_elementwise(
            "ld.global.v2.f32 {$0, $1}, [$2];",
            "=f,=f,l",
            [pointer.to(tl.int64)],
            dtype=(tl.float32, tl.float32),
            is_pure=False,
            pack=1,
        )
    return two


@triton.jit
def store_two(pointer, values, mask, INTERPRET: tl.constexpr):
    """Store two numbers side by side, at a multiple of two."""
    if INTERPRET:
        for i in tl.static_range(2):
            tl.store(pointer + i, values[i], mask=mask)
    else:
        is_double: tl.constexpr = pointer.dtype.element_ty == tl.float64
        asm: tl.constexpr = (
            "{ .reg .pred p; setp.ne.s32 p, $4, 0; @p st.global.v2."
            + ("f64" if is_double else "f32")
            + " [$1], {$2, $3}; mov.b32 $0, 0; }"
        )
        tl.inline_asm_elementwise(
            asm,
            "=r,l,d,d,r" if is_double else "=r,l,f,f,r",
            [pointer.to(tl.int64), values[0], values[1], mask.to(tl.int32)],
            dtype=tl.int32,
            is_pure=False,
            pack=1,
        )


@triton.jit
def shared_room(room, INTERPRET: tl.constexpr):
    """Return where 17 kB of the program's shared memory are; without a GPU, memory as it is."""
    if INTERPRET:
        return room
    return tl.inline_asm_elementwise(
        "{ .shared .align 16 .b8 sojourn_room[17408]; mov.u32 $0, sojourn_room; }",
        "=r,l",
        [room.to(tl.int64)],
        dtype=tl.int32,
        is_pure=False,
        pack=1,
    )


@triton.jit
def wait_for_warps(thread, INTERPRET: tl.constexpr):
    """Wait until all warps of a program are here."""
    if not INTERPRET:
        tl.inline_asm_elementwise(
            "bar.sync 0; mov.b32 $0, 0;", "=r,r", [thread], dtype=tl.int32, is_pure=False, pack=1
        )


@triton.jit
def store_two_shared(shared, at, values, mask, INTERPRET: tl.constexpr):
    """Store two numbers in shared memory, side by side at a multiple of two."""
    if INTERPRET:
        for i in tl.static_range(2):
            tl.store(shared + at + i, values[i].to(tl.int32, bitcast=True), mask=mask)
    else:
        tl.inline_asm_elementwise(
            """
            {
                .reg .pred p;
                setp.ne.s32 p, $4, 0;
                @p st.shared.v2.f32 [$1], {$2, $3};
                mov.b32 $0, 0;
            }
            """,
            "=r,r,f,f,r",
            [shared + 4 * at, values[0], values[1], mask.to(tl.int32)],
            dtype=tl.int32,
            is_pure=False,
            pack=1,
        )


@triton.jit
def load_four_shared(shared, at, INTERPRET: tl.constexpr):
    """Load four numbers that lie side by side in shared memory, at a multiple of four."""
    if INTERPRET:
        return (
            tl.load(shared + at).to(tl.float32, bitcast=True),
            tl.load(shared + at + 1).to(tl.float32, bitcast=True),
            tl.load(shared + at + 2).to(tl.float32, bitcast=True),
            tl.load(shared + at + 3).to(tl.float32, bitcast=True),
        )
    return tl.inline_asm_elementwise(
        "ld.shared.v4.f32 {$0, $1, $2, $3}, [$4];",
        "=f,=f,=f,=f,r",
        [shared + 4 * at],
        dtype=(tl.float32, tl.float32, tl.float32, tl.float32),
        is_pure=False,
        pack=1,
    )


@triton.jit
def send(slot, values, sign):
    """Write four numbers for threads of other programs, with a sign for their last bits."""
    tl.inline_asm_elementwise(
        """
        {
            .reg .b32 a, b, c, d;
            lop3.b32 a, $2, 0xfffffffe, $6, 0xea;
            lop3.b32 b, $3, 0xfffffffe, $6, 0xea;
            lop3.b32 c, $4, 0xfffffffe, $6, 0xea;
            lop3.b32 d, $5, 0xfffffffe, $6, 0xea;
            st.relaxed.gpu.global.v4.b32 [$1], {a, b, c, d};
            mov.b32 $0, 0;
        }
        """,
        "=r,l,r,r,r,r,r",
        [
            slot.to(tl.int64),
            values[0].to(tl.int32, bitcast=True),
            values[1].to(tl.int32, bitcast=True),
            values[2].to(tl.int32, bitcast=True),
            values[3].to(tl.int32, bitcast=True),
            sign,
        ],
        dtype=tl.int32,
        is_pure=False,
        pack=1,
    )


@triton.jit
def receive_three(first, second, third, sign):
    """Read what three programs send, four numbers each, as soon as all have the sign.

    After some seconds it gives up, and reads what is there.
    """
    return tl.inline_asm_elementwise(
        """
        {
            .reg .pred p;
            .reg .b32 e, f, n;
            mov.b32 n, 0;
        again:
            ld.relaxed.gpu.global.v4.b32 {$0, $1, $2, $3}, [$12];
            ld.relaxed.gpu.global.v4.b32 {$4, $5, $6, $7}, [$13];
            ld.relaxed.gpu.global.v4.b32 {$8, $9, $10, $11}, [$14];
            and.b32 e, $0, $1;
            or.b32 f, $0, $1;
            lop3.b32 e, e, $2, $3, 0x80; lop3.b32 f, f, $2, $3, 0xfe;
            lop3.b32 e, e, $4, $5, 0x80; lop3.b32 f, f, $4, $5, 0xfe;
            lop3.b32 e, e, $6, $7, 0x80; lop3.b32 f, f, $6, $7, 0xfe;
            lop3.b32 e, e, $8, $9, 0x80; lop3.b32 f, f, $8, $9, 0xfe;
            lop3.b32 e, e, $10, $11, 0x80; lop3.b32 f, f, $10, $11, 0xfe;
            xor.b32 e, e, $15;
            xor.b32 f, f, $15;
            lop3.b32 e, e, f, 1, 0xa8;
            add.u32 n, n, 1;
            setp.ne.u32 p, e, 0;
            setp.lt.and.u32 p, n, 16777216, p;
            @p bra again;
            and.b32 $0, $0, 0xfffffffe; and.b32 $1, $1, 0xfffffffe;
            and.b32 $2, $2, 0xfffffffe; and.b32 $3, $3, 0xfffffffe;
            and.b32 $4, $4, 0xfffffffe; and.b32 $5, $5, 0xfffffffe;
            and.b32 $6, $6, 0xfffffffe; and.b32 $7, $7, 0xfffffffe;
            and.b32 $8, $8, 0xfffffffe; and.b32 $9, $9, 0xfffffffe;
            and.b32 $10, $10, 0xfffffffe; and.b32 $11, $11, 0xfffffffe;
        }
        """,
        "=&r,=&r,=&r,=&r,=&r,=&r,=&r,=&r,=&r,=&r,=&r,=&r,l,l,l,r",
        [first.to(tl.int64), second.to(tl.int64), third.to(tl.int64), sign],
        dtype=(
            tl.float32,
            tl.float32,
            tl.float32,
            tl.float32,
            tl.float32,
            tl.float32,
            tl.float32,
            tl.float32,
            tl.float32,
            tl.float32,
            tl.float32,
            tl.float32,
        ),
        is_pure=False,
        pack=1,
    )
