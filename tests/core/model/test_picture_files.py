"""Picture files: whole ones are read, damaged ones are refused with the reason."""

import zlib

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from palyra.core.model.picture_files import (
    BrokenPicture,
    HugePicture,
    PictureFile,
    media_type_of,
    read_picture,
)
from tests.pictures import GIF, JPEG, PNG, WEBP, WEBP_LOSSLESS, chunk, png
from tests.rows import every_row

SIDE = 8_000
SIGNATURE, HEADER, END = PNG[:8], PNG[8:33], PNG[-12:]
WHOLE = [PNG, JPEG, GIF, WEBP, WEBP_LOSSLESS]


def riff(*chunks: tuple[bytes, bytes]) -> bytes:
    """A WebP of these chunks."""
    parts = (k + len(b).to_bytes(4, "little") + b + bytes(len(b) % 2) for k, b in chunks)
    body = b"WEBP" + b"".join(parts)
    return b"RIFF" + len(body).to_bytes(4, "little") + body


FRAME = JPEG.index(b"\xff\xc0")
VP8, VP8L = WEBP[20:], WEBP_LOSSLESS[20:33]
CANVAS = b"\x10\0\0\0\x7f\x02\0\xdf\x01\0"  # 640 x 480


@every_row(
    ("data", "expected"),
    [
        (PNG, ("image/png", 1, 1)),
        (png(640, 480, colour=6), ("image/png", 640, 480)),
        (png(3, 2, colour=3), ("image/png", 3, 2)),
        (png(SIDE, 1), ("image/png", SIDE, 1)),
        (PNG + b"what an editor left", ("image/png", 1, 1)),
        (PNG[:33] + chunk(b"tEXt", b"a\0b") + PNG[33:], ("image/png", 1, 1)),
        (JPEG, ("image/jpeg", 1, 1)),
        (JPEG + bytes(9), ("image/jpeg", 1, 1)),
        (JPEG[:2] + b"\xff\xfe\0\x06abcd\xff\x01\xff" + JPEG[2:], ("image/jpeg", 1, 1)),
        (JPEG[:-3] + b"\xff\0\xff\xd0\x3f" + JPEG[-2:], ("image/jpeg", 1, 1)),
        (GIF, ("image/gif", 1, 1)),
        (GIF[:-1], ("image/gif", 1, 1)),  # old encoders end so
        (WEBP, ("image/webp", 1, 1)),
        (WEBP_LOSSLESS, ("image/webp", 1, 1)),
        (riff((b"VP8X", CANVAS), (b"VP8L", VP8L), (b"EXIF", b"abc")), ("image/webp", 640, 480)),
        (
            riff((b"VP8X", CANVAS), (b"ANIM", bytes(6)), (b"ANMF", bytes(16) + WEBP[12:])),
            ("image/webp", 640, 480),
        ),
    ],
)
def test_a_whole_file_is_read(data: bytes, expected: PictureFile) -> None:
    """Type and size come from the header, whatever else the file holds."""
    assert expected == read_picture(data, SIDE)


def header(**changes: int) -> bytes:
    """A PNG whose header has other bytes."""
    body = bytearray(HEADER[8:21])
    for at, value in changes.items():
        body[int(at.removeprefix("at"))] = value
    return SIGNATURE + chunk(b"IHDR", bytes(body)) + PNG[33:]


@every_row(
    ("data", "said"),
    [
        (b"", "no PNG"),
        (b"text", "no PNG"),
        (b"RIFF\x10\0\0\0WAVE", "no PNG"),
        (SIGNATURE, "truncated"),
        (SIGNATURE + bytes(60), "checksum of the chunk"),
        (SIGNATURE + PNG[33:], "does not begin with its header"),
        (SIGNATURE + HEADER + END, "no pixels"),
        (SIGNATURE + HEADER + PNG[33:-12], "truncated"),
        (SIGNATURE + HEADER + chunk(b"IDAT", b"abc") + END, "cannot be unpacked"),
        (SIGNATURE + HEADER + chunk(b"IDAT", zlib.compress(b"\0")) + END, "1 of 2 bytes of pixels"),
        (SIGNATURE + HEADER[:-1] + b"x" + PNG[33:], "checksum of the chunk IHDR"),
        (PNG[:-14] + b"xx" + END, "checksum of the chunk IDAT"),
        (header(at3=0), "says 0 x 1 pixels"),
        (header(at8=3), "form that does not exist"),
        (header(at9=5), "form that does not exist"),
        (header(at10=1), "form that does not exist"),
        (header(at12=2), "form that does not exist"),
        (header(at9=3), "no palette"),
        (header(at3=2), "of 3 bytes of pixels"),
        (JPEG[:2] + JPEG[-2:], "no pixels"),
        (JPEG[:-2], "ends within its pixels"),
        (JPEG[:40], "ends within the segment DB"),
        (JPEG[:2] + JPEG[FRAME:], "before their frame header or tables"),
        (JPEG.replace(b"\xff\xc0", b"\xff\xc3"), "rare kind"),
        (JPEG.replace(b"\x08\0\x01\0\x01", b"\x08\0\0\0\x01"), "1 x 0 pixels"),
        (JPEG.replace(b"\x01\x01\x11", b"\x05\x01\x11"), "agree with itself"),
        (JPEG[:FRAME] + b"ab" + JPEG[FRAME:], "no marker"),
        (JPEG[:FRAME] + JPEG[-2:], "no pixels"),
        (GIF[:10], "truncated"),
        (GIF[:-4], "truncated"),
        (GIF[:6] + bytes(4) + GIF[10:], "0 x 0 pixels"),
        (GIF[:19] + b";", "no image"),
        (GIF[:19] + b"\x07", "unknown kind 07"),
        (GIF[:19] + b"," + bytes(8) + b"\0\x02\0;", "no pixels"),
        (WEBP[:-1], "truncated"),
        (riff((b"EXIF", b"a")), "does not begin with its header"),
        (riff((b"VP8X", CANVAS)), "no pixels"),
        (riff((b"VP8X", b"abc")), "header (VP8X)"),
        (riff((b"VP8L", b"\0" + VP8L[1:])), "do not begin as they should"),
        (riff((b"VP8 ", VP8[:3] + b"abc" + VP8[6:])), "do not begin as they should"),
        (riff((b"VP8 ", VP8[:12])), "ends within its pixels (VP8)"),
        (riff(), "no pixels"),
    ],
)  # fmt: skip
def test_a_damaged_file_is_refused(data: bytes, said: str) -> None:
    """The reason names the part."""
    with pytest.raises(BrokenPicture) as caught:
        read_picture(data, SIDE)
    assert said in caught.value.message


@pytest.mark.parametrize("colour", [0, 2, 3, 4, 6])
@pytest.mark.parametrize(("width", "height"), [(1, 1), (5, 3), (8, 8), (9, 17)])
def test_interlaced_pixels_are_counted(colour: int, width: int, height: int) -> None:
    """Every pass has rows of its own; the rows of all are what the file must hold."""
    plain = png(width, height, colour=colour)
    samples = {0: 1, 2: 3, 3: 1, 4: 2, 6: 4}[colour]
    passes = ((0, 0, 8, 8), (4, 0, 8, 8), (0, 4, 4, 8), (2, 0, 4, 4), (0, 2, 2, 4), (1, 0, 2, 2), (0, 1, 1, 2))  # fmt: skip
    rows = [
        len(range(left, width, across))
        for left, top, across, down in passes
        for _ in range(top, height, down)
        if range(left, width, across)
    ]
    size = sum(1 + columns * samples for columns in rows)
    head = chunk(b"IHDR", plain[16:28] + b"\x01")
    palette = chunk(b"PLTE", bytes(3))

    def interlaced(count: int) -> bytes:
        pixels = chunk(b"IDAT", zlib.compress(bytes(count)))
        return SIGNATURE + head + palette + pixels + END

    assert (width, height) == read_picture(interlaced(size), SIDE)[1:]
    with pytest.raises(BrokenPicture, match="bytes of pixels"):
        read_picture(interlaced(size - 1), SIDE)


def test_a_huge_side_is_refused_before_its_pixels() -> None:
    """A few bytes that announce more pixels than a side may have are not unpacked."""
    with pytest.raises(HugePicture, match=f"{SIDE + 1} x 1 pixels; a side may have {SIDE}"):
        read_picture(png(SIDE + 1, 1), SIDE)


@given(st.sampled_from(WHOLE), st.data())
def test_a_truncated_file_is_refused(whole: bytes, data: st.DataObject) -> None:
    """At whatever byte it ends; a GIF alone may lack its last one."""
    end = data.draw(st.integers(0, len(whole) - (2 if whole is GIF else 1)))
    with pytest.raises(BrokenPicture):
        read_picture(whole[:end], SIDE)


@given(st.sampled_from([*WHOLE, png(9, 9, colour=6)]), st.integers(0, 300), st.binary(max_size=40))
@example(JPEG, 2, b"\xff\xe0\0\0" * 9)
def test_any_bytes_are_read_or_refused(whole: bytes, start: int, more: bytes) -> None:
    """A damaged file raises no other error."""
    try:
        found = read_picture(whole[:start] + more + whole[start + len(more) :], SIDE)
    except BrokenPicture:
        return
    assert min(found[1:]) > 0
    assert media_type_of(whole) == found.media_type


@given(st.binary(max_size=40))
def test_any_bytes_have_a_type_or_none(data: bytes) -> None:
    """And none that a browser would run."""
    assert media_type_of(data) in {None, "image/png", "image/jpeg", "image/gif", "image/webp"}
