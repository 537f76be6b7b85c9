"""Real files for the tests: Word and PDF, written by hand."""

import io
import zipfile
from collections.abc import Iterable, Sequence
from xml.sax.saxutils import escape

from pypdf import PdfReader, PdfWriter

WORD = 'xmlns:w="http://schemas.openxmlformats.org/wordprocessingml/2006/main"'
CONTENT_TYPES = """<?xml version="1.0" encoding="UTF-8"?>
<Types xmlns="http://schemas.openxmlformats.org/package/2006/content-types">
<Default Extension="rels" ContentType="application/vnd.openxmlformats-package.relationships+xml"/>
<Default Extension="xml" ContentType="application/xml"/>
<Override PartName="/word/document.xml"
 ContentType="application/vnd.openxmlformats-officedocument.wordprocessingml.document.main+xml"/>
</Types>"""
RELATIONSHIPS = """<?xml version="1.0" encoding="UTF-8"?>
<Relationships xmlns="http://schemas.openxmlformats.org/package/2006/relationships">
<Relationship Id="r1" Target="word/document.xml"
 Type="http://schemas.openxmlformats.org/officeDocument/2006/relationships/officeDocument"/>
</Relationships>"""
STYLES = f"""<?xml version="1.0" encoding="UTF-8"?><w:styles {WORD}>
<w:style w:type="paragraph" w:styleId="Titel"><w:name w:val="Title"/></w:style>
<w:style w:type="paragraph" w:styleId="Kop1"><w:name w:val="heading 1"/></w:style>
<w:style w:type="paragraph" w:styleId="Kop2"><w:name w:val="heading 2"/></w:style>
</w:styles>"""


ESCAPES = str.maketrans({"(": r"\(", ")": r"\)", "\\": r"\\"})


def make_docx(
    paragraphs: Iterable[tuple[str, str]], *, rows: Iterable[Sequence[str]] = (), title: str = "", padding: int = 0
) -> bytes:
    """A Word file of (style, text), with one table; styles as a Dutch Word calls them: Titel, Kop1, Kop2."""
    body = "".join(_paragraph(text, style) for style, text in paragraphs)
    cells = ["".join(f"<w:tc>{_paragraph(cell)}</w:tc>" for cell in row) for row in rows]
    table = "".join(f"<w:tr>{row}</w:tr>" for row in cells)
    core = f"""<?xml version="1.0"?><cp:coreProperties xmlns:dc="http://purl.org/dc/elements/1.1/"
        xmlns:cp="http://schemas.openxmlformats.org/package/2006/metadata/core-properties">
        <dc:title>{escape(title)}</dc:title></cp:coreProperties>"""
    file = io.BytesIO()
    with zipfile.ZipFile(file, "w", zipfile.ZIP_DEFLATED) as parts:
        parts.writestr("[Content_Types].xml", CONTENT_TYPES)
        parts.writestr("_rels/.rels", RELATIONSHIPS)
        parts.writestr("word/styles.xml", STYLES)
        parts.writestr("docProps/core.xml", core)
        document = f"<w:body>{body}{f'<w:tbl>{table}</w:tbl>' if table else ''}</w:body>"
        parts.writestr("word/document.xml", f'<?xml version="1.0"?><w:document {WORD}>{document}</w:document>')
        if padding:
            parts.writestr("word/comments.xml", b" " * padding)
    return file.getvalue()


def _paragraph(text: str, style: str = "") -> str:
    properties = f'<w:pPr><w:pStyle w:val="{style}"/></w:pPr>' if style else ""
    return f"<w:p>{properties}<w:r><w:t>{escape(text)}</w:t></w:r></w:p>"


def make_pdf(
    pages: Iterable[Sequence[str]],
    *,
    title: str = "",
    outline: Sequence[tuple[int, str]] = (),
    password: str | None = None,
) -> bytes:
    """A PDF of pages of lines, with an outline of (page, heading) and a password where wanted."""
    objects: list[bytes] = []

    def add(text: str | bytes) -> int:
        objects.append(text if isinstance(text, bytes) else text.encode("cp1252"))
        return len(objects)

    catalog, tree = add(""), add("")
    font = add("<< /Type /Font /Subtype /Type1 /BaseFont /Helvetica /Encoding /WinAnsiEncoding >>")
    kids = []
    for lines in pages:
        shown = " ".join(f"({line.translate(ESCAPES)}) Tj T*" for line in lines)
        stream = f"BT /F1 11 Tf 14 TL 50 800 Td {shown} ET".encode("cp1252")
        content = add(b"<< /Length %d >>\nstream\n%s\nendstream" % (len(stream), stream))
        kids.append(
            add(
                f"<< /Type /Page /Parent {tree} 0 R /MediaBox [0 0 595 842] /Contents {content} 0 R"
                f" /Resources << /Font << /F1 {font} 0 R >> >> >>"
            )
        )
    objects[catalog - 1] = f"<< /Type /Catalog /Pages {tree} 0 R >>".encode()
    objects[tree - 1] = f"<< /Type /Pages /Count {len(kids)} /Kids [{' '.join(f'{k} 0 R' for k in kids)}] >>".encode()
    file = bytearray(b"%PDF-1.4\n")
    places = []
    for number, body in enumerate(objects, 1):
        places.append(len(file))
        file += b"%d 0 obj\n%s\nendobj\n" % (number, body)
    start = len(file)
    file += b"xref\n0 %d\n0000000000 65535 f \n" % (len(objects) + 1)
    file += b"".join(b"%010d 00000 n \n" % place for place in places)
    file += b"trailer << /Size %d /Root %d 0 R >>\nstartxref\n%d\n%%%%EOF\n" % (len(objects) + 1, catalog, start)
    if not (title or outline or password is not None):
        return bytes(file)
    writer = PdfWriter(clone_from=PdfReader(io.BytesIO(file)))
    writer.add_metadata({"/Title": title})
    for page, heading in outline:
        writer.add_outline_item(title=heading, page_number=page)
    if password is not None:
        writer.encrypt(user_password=password, owner_password="owner", algorithm="AES-256")
    written = io.BytesIO()
    writer.write(written)
    return written.getvalue()
