"""Protobuf: files as text and as descriptors, and which of them read what others wrote."""

from collections.abc import Sequence
from importlib import import_module

import pytest

from barnabas.schemas.confluent_files import confluent_file
from barnabas.schemas.formats import protobuf
from barnabas.schemas.formats.parsed import InvalidSchema, Referenced, UnsupportedFormat
from barnabas.schemas.formats.protobuf import ProtobufSchema, parse_protobuf

HEAD = 'syntax = "proto3";\npackage p;\n'

CASES: tuple[tuple[str, str, str, list[str]], ...] = (
    ("Field", "int64 other = 1; string more = 2;", "int32 a = 1;", []),
    ("Removed", "", "int32 a = 1; string b = 2;", []),
    ("Kind", "string a = 1;", "int32 a = 1;", ["FIELD_SCALAR_KIND_CHANGED /1"]),
    ("ZigZag", "sint32 a = 1;", "int32 a = 1;", ["FIELD_SCALAR_KIND_CHANGED /1"]),
    ("Bytes", "bytes a = 1;", "string a = 1;", []),
    ("Text", "string a = 1;", "bytes a = 1;", ["FIELD_SCALAR_KIND_CHANGED /1"]),
    ("Repeated", "repeated string a = 1;", "string a = 1;", []),
    ("Packed", "repeated int32 a = 1;", "int32 a = 1;", ["FIELD_NUMERIC_LABEL_CHANGED /1"]),
    ("Enum", "enum E { Z = 0; } E a = 1;", "int32 a = 1;", []),
    ("Message", "message M { } M a = 1;", "message M { } string a = 1;", ["FIELD_KIND_CHANGED /1"]),
    ("Named", "message N { } N a = 1; message M { }", "message M { } M a = 1;", ["FIELD_NAMED_TYPE_CHANGED /1"]),
    ("Nested", "message M { string x = 1; } M a = 1;", "message M { int32 x = 1; } M a = 1;",
     ["FIELD_SCALAR_KIND_CHANGED .M/1"]),
    ("Gone", "", "message M { }", ["MESSAGE_REMOVED .M"]),
    ("Self", "Self a = 1; int64 b = 2;", "Self a = 1; int32 b = 2;", []),
    ("Map", "map<string, int64> a = 1;", "map<string, int32> b = 1;", []),
    ("MapValue", "map<string, string> a = 1;", "map<string, int32> a = 1;", ["FIELD_SCALAR_KIND_CHANGED .AEntry/2"]),
    ("Moved", "oneof o { int32 a = 1; int32 b = 2; }", "int32 a = 1; int32 b = 2;",
     ["MULTIPLE_FIELDS_MOVED_TO_ONEOF /o"]),
    ("MovedOne", "oneof o { int32 a = 1; int32 b = 2; }", "int32 a = 1;", []),
    ("OneofGone", "oneof o { int32 a = 1; }", "oneof o { int32 a = 1; int32 b = 2; }", ["ONEOF_FIELD_REMOVED /2"]),
    ("Optional", "int32 a = 1;", "optional int32 a = 1; optional int32 b = 2;", []),
)  # fmt: skip
"""Message, what is in it for the reader, for the writer, the differences."""


@pytest.fixture(scope="module")
def pair() -> Sequence[ProtobufSchema]:
    """The reader's file and the writer's, each with all messages: the compiler is called but twice."""
    return [
        parse_protobuf(HEAD + "\n".join(f"message {case[0]} {{ {case[side]} }}" for case in CASES)) for side in (1, 2)
    ]


@pytest.mark.parametrize(("name", "expected"), [(case[0], case[3]) for case in CASES], ids=[case[0] for case in CASES])
def test_incompatible_protobuf_changes_are_reported(
    pair: Sequence[ProtobufSchema], name: str, expected: list[str]
) -> None:
    prefix = f"#/p.{name}"
    found = [
        f"{each.kind} {each.path.removeprefix(prefix)}"
        for each in pair[0].cannot_read(pair[1])
        if each.path.startswith((f"{prefix}/", f"{prefix}."))
    ]
    assert found == expected


def test_nothing_differs_from_itself_and_packages_do(pair: Sequence[ProtobufSchema]) -> None:
    assert pair[0].cannot_read(pair[0]) == []
    other = parse_protobuf(pair[0].canonical.replace("package p;", "package q;"))
    assert [each.kind for each in other.cannot_read(pair[0])] == ["PACKAGE_CHANGED"]


def test_text_and_descriptor_are_one(monkeypatch: pytest.MonkeyPatch) -> None:
    page = Referenced("web/page.proto", 'syntax = "proto3";\npackage web;\nmessage Page { string path = 1; }')
    imports = 'import "web/page.proto";\nimport "google/protobuf/timestamp.proto";\n'
    text = f"{HEAD}{imports}message Visit {{ web.Page page_of = 1; google.protobuf.Timestamp at = 2; }}\n"
    schema = parse_protobuf(text, [page])
    assert schema.canonical == text.strip()
    assert [file.name for file in schema.imported] == ["web/page.proto", "google/protobuf/timestamp.proto"]
    binary_page = Referenced(page.name, parse_protobuf(page.text).serialized)
    assert parse_protobuf(text, [binary_page]).serialized == schema.serialized
    monkeypatch.setattr(protobuf, "find_spec", lambda _: None)
    again = parse_protobuf(schema.serialized, [binary_page])  # no compiler is needed, but for the text
    assert again.serialized == again.canonical == schema.serialized
    assert again.cannot_read(schema) == schema.cannot_read(again) == []
    with pytest.raises(UnsupportedFormat, match="pip install grpcio-tools"):
        parse_protobuf(text, [page])
    with pytest.raises(InvalidSchema, match=r"imports web/page.proto, for which there is no reference"):
        parse_protobuf(schema.serialized)


EVERYTHING = """syntax = "proto2";
package p.q;
import public "google/protobuf/any.proto";
option java_package = "org.\\"x\\"";
option optimize_for = CODE_SIZE;
enum E {
  option allow_alias = true;
  A = 0;
  B = 0 [deprecated = true];
  C = -3;
  reserved 5 to 7;
  reserved 9 to max;
  reserved "D";
}
message M {
  option deprecated = true;
  message N {
    required bytes b = 1 [default = "\\001\\377"];
  }
  optional string s = 1 [default = "a\\"\\n\\303\\251", json_name = "other"];
  repeated int32 n = 2 [packed = true];
  optional .p.q.M.N inner = 3;
  map<string, .p.q.E> m = 4;
  oneof o {
    double d = 5;
    .google.protobuf.Any any = 6;
  }
  optional float f = 7 [default = inf];
  extensions 100 to 199;
  reserved 50 to 60;
  reserved "old";
}
extend .p.q.M {
  optional bool flag = 100;
}
service S {
  rpc Do (.p.q.M) returns (stream .p.q.M.N) { option deprecated = true; }
}
"""


def test_a_descriptor_is_stored_as_text_if_that_is_lossless() -> None:
    """People can read the schemas of Python clients; text and descriptor have one normal form."""
    schema = parse_protobuf(EVERYTHING)
    again = parse_protobuf(schema.serialized)
    assert again.canonical == EVERYTHING
    assert again.normalized == schema.normalized == EVERYTHING
    new = parse_protobuf('syntax="proto3";message A{optional int32 a_b=1; repeated A list=2; enum E{Z=0;} E e=3;}')
    assert "optional int32 a_b = 1;" in new.normalized
    custom = (
        'import "google/protobuf/descriptor.proto"; extend google.protobuf.FileOptions { optional int32 x = 50001; }'
    )
    descriptor = parse_protobuf(f'syntax = "proto2"; {custom} option (x) = 4;').serialized
    assert parse_protobuf(descriptor).canonical == descriptor


@pytest.mark.parametrize(
    ("text", "why"),
    [
        ("message M { int32 a = 1; int32 b = 1; }", r"default.proto:3:36: Field number 1 has already been used"),
        ('import "nowhere.proto";', "nowhere.proto: File not found"),
        ('import "/etc/passwd";', "File not found"),
        ("hello", "Expected top-level statement"),
    ],
)
def test_invalid_protobuf_file_is_an_error(text: str, why: str) -> None:
    with pytest.raises(InvalidSchema, match=why):
        parse_protobuf(HEAD + text)


def test_paths_of_references_stay_in_their_folder() -> None:
    for path in ("../x.proto", "/x.proto", "a/../../x.proto", "a\0b"):
        with pytest.raises(InvalidSchema, match="is not a path to import"):
            parse_protobuf(HEAD, [Referenced(path, HEAD)])


BUILT_IN = """
syntax = "proto3";
import "google/type/money.proto";
import "confluent/meta.proto";
import "confluent/type/decimal.proto";
message Order {
  option (confluent.message_meta).doc = "an order";
  google.type.Money price = 1;
  confluent.type.Decimal weight = 2 [(confluent.field_meta) = {tags: "PII"}];
}
"""


def test_files_of_google_type_and_confluent_need_no_reference() -> None:
    parsed = parse_protobuf(BUILT_IN)
    assert {"google/type/money.proto", "confluent/meta.proto", "confluent/type/decimal.proto"} <= {
        each.name for each in parsed.imported
    }
    again = parse_protobuf(parsed.serialized)
    assert [field.type_name for field in again.file.message_type[0].field] == [
        ".google.type.Money",
        ".confluent.type.Decimal",
    ]


def test_built_in_files_are_those_of_the_confluent_client() -> None:
    from google.protobuf.descriptor_pb2 import FileDescriptorProto

    for module, name in (("meta", "confluent/meta.proto"), ("type.decimal", "confluent/type/decimal.proto")):
        theirs = FileDescriptorProto()
        import_module(f"confluent_kafka.schema_registry.confluent.{module}_pb2").DESCRIPTOR.CopyToProto(theirs)
        ours = FileDescriptorProto()
        ours.CopyFrom(confluent_file(name))
        for file in (ours, theirs):
            file.ClearField("options")
            for message in (*file.message_type, *(n for m in file.message_type for n in m.nested_type)):
                for field in message.field:
                    field.ClearField("json_name")
            for extension in file.extension:
                extension.ClearField("json_name")
                extension.ClearField("proto3_optional")
        assert ours == theirs
