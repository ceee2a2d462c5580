// Headers of safetensors files: odd ones that are good, and every way in which one can be bad.

#include <doctest/doctest.h>

#include <array>
#include <cstdint>
#include <string>
#include <vector>

#include "shardwise/checkpoint/safetensors_header.hpp"
#include "support/messages.hpp"
#include "unit/checkpoint/texts.hpp"

using namespace shardwise;
using testing::check_mentions;
using testing::entry;
using testing::message_of;

namespace {

struct Row {
  const char* what;
  std::string json;
  std::uint64_t data_bytes;
  std::string said;  // part of the message; of no meaning for good ones
};

detail::SafetensorsHeader parse(const std::string& json, std::uint64_t data_bytes) {
  return detail::parse_safetensors_header(json, data_bytes, "file");
}

/// A tensor "a" of four F32 in which one part of the JSON is another.
std::string with_shape(const std::string& shape) {
  return R"({"a":{"dtype":"F32","shape":)" + shape + R"(,"data_offsets":[0,16]}})";
}
std::string with_offsets(const std::string& offsets) {
  return R"({"a":{"dtype":"F32","shape":[4],"data_offsets":)" + offsets + "}}";
}
std::string with_dtype(const std::string& dtype) {
  return R"({"a":{"dtype":)" + dtype + R"(,"shape":[4],"data_offsets":[0,16]}})";
}

const std::string good = entry("a", "F32", "4", "0,16");

}  // namespace

TEST_CASE("odd headers that are good") {
  const std::vector<Row> rows{
      {"no tensors", "{}", 0, ""},
      {"no tensors but metadata", R"({"__metadata__":{"a":"b"}})", 0, ""},
      {"empty metadata", R"({"__metadata__":{}})", 0, ""},
      {"white space in front and behind", " \n\t\r{" + good + "}  \n", 16, ""},
      {"a scalar", "{" + entry("a", "F64", "", "0,8") + "}", 8, ""},
      {"an empty tensor", "{" + entry("a", "F32", "0,3", "0,0") + "}", 0, ""},
      {"empty tensors between others",
       "{" + entry("a", "U8", "3", "0,3") + "," + entry("b", "F32", "0", "3,3") + "," +
           entry("c", "F64", "2,0", "3,3") + "," + entry("d", "U8", "1", "3,4") + "}",
       4, ""},
      {"another order than that of the data",
       "{" + entry("b", "U8", "1", "3,4") + "," + entry("a", "U8", "3", "0,3") + "}", 4, ""},
      {"members in another order", R"({"a":{"data_offsets":[0,16],"shape":[4],"dtype":"F32"}})", 16,
       ""},
      {"an empty name", "{" + entry("", "U8", "1", "0,1") + "}", 1, ""},
      {"a name in other letters", "{" + entry("größe 重み", "U8", "1", "0,1") + "}", 1, ""},
      {"a name with escapes",
       R"({"\u00e9\n\"\ud83d\ude00":{"dtype":"U8","shape":[1],)"
       R"("data_offsets":[0,1]}})",
       1, ""},
      {"four bits an element", "{" + entry("a", "F4", "3,2", "0,3") + "}", 3, ""},
      {"six bits an element", "{" + entry("a", "F6_E2M3", "4", "0,3") + "}", 3, ""},
      {"more axes than a Shape", "{" + entry("a", "U8", "1,1,1,1,1,1,1,1,1,2", "0,2") + "}", 2, ""},
      {"null for metadata", R"({"__metadata__":null})", 0, ""},
  };
  for (const Row& row : rows) {
    CAPTURE(row.what);
    CHECK(message_of<data_error>([&] { parse(row.json, row.data_bytes); }) == "");
  }
  const detail::SafetensorsHeader header = parse(rows[11].json, 1);
  CHECK(header.tensors.begin()->first == "é\n\"😀");
  CHECK(parse(rows[4].json, 8).tensors.at("a").shape.empty());
}

TEST_CASE("all dtypes of the format are read") {
  for (const detail::FileDtype& dtype : detail::file_dtypes) {
    CAPTURE(dtype.name);
    const std::string bytes = std::to_string(dtype.bits);  // of eight elements
    const auto header =
        parse("{" + entry("a", std::string(dtype.name), "8", "0," + bytes) + "}", dtype.bits);
    CHECK(header.tensors.at("a").dtype == dtype);
  }
}

TEST_CASE("hostile headers are refused") {
  const std::string deep(100000, '[');
  std::string deep_objects;
  for (int i = 0; i < 100000; ++i) deep_objects += R"({"a":)";
  const std::vector<Row> rows{
      {"nothing", "", 0, "no JSON object"},
      {"white space", "   ", 0, "no JSON object"},
      {"a list", "[]", 0, "no JSON object"},
      {"a text", "\"a\"", 0, "no JSON object"},
      {"a number", "1", 0, "no JSON object"},
      {"a byte order mark", "\xef\xbb\xbf{}", 0, "no JSON object"},
      {"a zero byte and more", std::string("{}\0{", 4), 0, "zero byte"},
      {"text behind the object", "{}x", 0, "byte 3"},
      {"two objects", "{}{}", 0, "no JSON"},
      {"cut short", "{" + good, 16, "no JSON"},
      {"a comment", "{/**/}", 0, "no JSON"},
      {"a comma too many", "{" + good + ",}", 16, "no JSON"},
      {"single quotes", "{'a':{}}", 0, "no JSON"},
      {"NaN", with_shape("[NaN]"), 16, "no JSON"},
      {"a leading zero", with_shape("[04]"), 16, "no JSON"},
      {"a plus sign", with_shape("[+4]"), 16, "no JSON"},
      {"hexadecimal", with_shape("[0x4]"), 16, "no JSON"},
      {"bytes that are no UTF-8", "{" + entry("\xff", "F32", "4", "0,16") + "}", 16, "UTF-8"},
      {"an overlong slash", "{" + entry("\xc0\xaf", "F32", "4", "0,16") + "}", 16, "UTF-8"},
      {"a surrogate in UTF-8", "{" + entry("\xed\xa0\x80", "F32", "4", "0,16") + "}", 16, "UTF-8"},
      {"half a surrogate pair", "{" + entry("\\ud800", "F32", "4", "0,16") + "}", 16, "no JSON"},
      {"a line break in a name", "{" + entry("\n", "F32", "4", "0,16") + "}", 16, "no JSON"},

      {"a tensor twice", "{" + good + "," + entry("a", "F32", "0", "16,16") + "}", 16, "twice"},
      {"a tensor twice, once escaped",
       "{" + good + "," + entry("\\u0061", "F32", "0", "16,16") + "}", 16, "twice"},
      {"metadata twice", R"({"__metadata__":{},"__metadata__":{}})", 0, "twice"},
      {"a key of metadata twice", R"({"__metadata__":{"k":"1","k":"2"}})", 0, "twice"},
      {"a dtype twice", R"({"a":{"dtype":"F32","dtype":"F32","shape":[4],"data_offsets":[0,16]}})",
       16, "twice"},

      {"metadata that are no object", R"({"__metadata__":"x"})", 0, "no JSON object"},
      {"null for a tensor", R"({"a":null})", 0, "no JSON object"},
      {"a number in metadata", R"({"__metadata__":{"k":1}})", 0, "'k', no text"},
      {"nothing in metadata", R"({"__metadata__":{"k":null}})", 0, "'k', no text"},
      {"a list in metadata", R"({"__metadata__":{"k":[]}})", 0, "'k', no text"},
      {"an object in metadata", R"({"__metadata__":{"k":{}}})", 0, "nested"},

      {"a tensor that is a list", R"({"a":[]})", 0, "'a' is no JSON object"},
      {"a tensor that is nothing", R"({"a":null})", 0, "'a' is no JSON object"},
      {"a tensor that is false", R"({"a":false})", 0, "'a' is no JSON object"},
      {"no dtype", R"({"a":{"shape":[4],"data_offsets":[0,16]}})", 16, "lacks"},
      {"no shape", R"({"a":{"dtype":"F32","data_offsets":[0,16]}})", 16, "lacks"},
      {"no offsets", R"({"a":{"dtype":"F32","shape":[4]}})", 16, "lacks"},
      {"an empty tensor object", R"({"a":{}})", 0, "lacks"},
      {"a member too many",
       R"({"a":{"dtype":"F32","shape":[4],"data_offsets":[0,16],"strides":[1]}})", 16, "'strides'"},

      {"a dtype of no format", with_dtype("\"F31\""), 16, "'F31'"},
      {"a dtype in small letters", with_dtype("\"f32\""), 16, "'f32'"},
      {"a dtype with a terminal's escape", with_dtype("\"\\u001b[2J\""), 16, "'?[2J'"},
      {"an empty dtype", with_dtype("\"\""), 16, "dtype"},
      {"a dtype that is a number", with_dtype("4"), 16, "dtype"},
      {"a dtype that is nothing", with_dtype("null"), 16, "dtype"},

      {"a shape that is a number", with_shape("4"), 16, "no list"},
      {"a shape that is a text", with_shape("\"4\""), 16, "no list"},
      {"a shape that is an object", with_shape("{}"), 16, "nested"},
      {"a negative extent", with_shape("[-4]"), 16, "whole numbers"},
      {"minus zero", with_shape("[-0]"), 16, "whole numbers"},
      {"an extent with a point", with_shape("[4.0]"), 16, "whole numbers"},
      {"an extent with an exponent", with_shape("[4e0]"), 16, "whole numbers"},
      {"an extent of 2^64", with_shape("[18446744073709551616]"), 16, "whole numbers"},
      {"an extent of 10^999", with_shape("[1e999]"), 16, "no JSON"},
      {"a text in the shape", with_shape("[\"4\"]"), 16, "whole numbers"},
      {"nothing in the shape", with_shape("[null]"), 16, "whole numbers"},
      {"true in the shape", with_shape("[true]"), 16, "whole numbers"},
      {"a list in the shape", with_shape("[[4]]"), 16, "nested"},
      {"an object in the shape", with_shape("[{}]"), 16, "nested"},
      {"a shape that wraps to 4", with_shape("[4611686018427387905,4]"), 16, "2^61"},
      {"a shape that wraps to 0", with_shape("[4294967296,4294967296]"), 16, "2^61"},
      {"bytes that wrap", "{" + entry("a", "F64", "2305843009213693952", "0,0") + "}", 0, "2^61"},
      {"a shape that wraps before its zero",
       "{" + entry("a", "U8", "9223372036854775808,4,0", "0,0") + "}", 0, "2^61"},
      {"half a byte", "{" + entry("a", "F4", "3", "0,2") + "}", 2, "2^61"},

      {"one offset", with_offsets("[16]"), 16, "two numbers"},
      {"three offsets", with_offsets("[0,16,16]"), 16, "two numbers"},
      {"no list of offsets", with_offsets("16"), 16, "two numbers"},
      {"a negative offset", with_offsets("[-16,0]"), 16, "whole numbers"},
      {"an offset with a point", with_offsets("[0.0,16.0]"), 16, "whole numbers"},
      {"offsets the wrong way round", with_offsets("[16,0]"), 16, "lies at 16 to 0"},
      {"more bytes than the shape has", with_offsets("[0,20]"), 20,
       "16 bytes, but lies at 0 to 20"},
      {"fewer bytes than the shape has", with_offsets("[0,12]"), 12, "16 bytes"},
      {"a hole in front", with_offsets("[4,20]"), 20, "hole"},
      {"far outside of the file", with_offsets("[18446744073709551599,18446744073709551615]"), 16,
       "hole"},
      {"a hole between",
       "{" + entry("a", "U8", "1", "0,1") + "," + entry("b", "U8", "1", "2,3") + "}", 3, "hole"},
      {"two in the same place",
       "{" + entry("a", "U8", "2", "0,2") + "," + entry("b", "U8", "2", "0,2") + "}", 2, "overlap"},
      {"two that overlap",
       "{" + entry("a", "U8", "2", "0,2") + "," + entry("b", "U8", "2", "1,3") + "}", 3, "overlap"},
      {"an empty one inside another",
       "{" + entry("a", "U8", "2", "0,2") + "," + entry("b", "U8", "0", "1,1") + "}", 2, "overlap"},
      {"an empty one behind the end", "{" + entry("a", "U8", "0", "9,9") + "}", 9, "hole"},
      {"data behind the last tensor", "{" + good + "}", 17, "end at byte 16 of the data, but the "},
      {"data that end early", "{" + good + "}", 15, "cut short"},
      {"data and no tensors", "{}", 1, "end at byte 0"},

      {"65 axes",
       [] {
         std::string shape = "[1";
         for (int i = 0; i < 64; ++i) shape += ",1";
         return with_shape(shape + "]");
       }(),
       4, "more than 64"},
      {"deep lists", R"({"a":{"shape":)" + deep, 0, "nested"},
      {"deep lists at the top", R"({"a":)" + deep, 0, "'a' is no JSON object"},
      {"deep objects", deep_objects, 0, "nested"},
  };
  CHECK(rows.size() > 27);
  for (const Row& row : rows) {
    CAPTURE(row.what);
    const std::string said = message_of<data_error>([&] { parse(row.json, row.data_bytes); });
    check_mentions(said, {"file: ", row.said});
    CHECK(said.size() < 400);  // whatever the file has, a message stays one
  }
}

TEST_CASE("the length of a header is bounded by the file and by the format") {
  const auto length = [](std::uint64_t announced, std::uint64_t file_bytes) {
    std::array<unsigned char, 8> first{};
    for (unsigned char& byte : first) {
      byte = static_cast<unsigned char>(announced & 0xffU);
      announced >>= 8;
    }
    return detail::safetensors_header_length(first, file_bytes, "file");
  };
  CHECK(length(2, 10) == 2);
  CHECK(length(0x010203, std::uint64_t{1} << 40) == 0x010203);
  CHECK(length(100'000'000, std::uint64_t{1} << 40) == 100'000'000);
  struct Row {
    std::uint64_t announced, file_bytes;
  };
  for (const Row& row : {Row{3, 10},
                         {2, 7},
                         {0, 7},
                         {0, 0},
                         {100'000'001, std::uint64_t{1} << 40},
                         {UINT64_MAX, 16},
                         {UINT64_MAX - 7, UINT64_MAX}}) {
    CAPTURE(row.announced);
    CHECK(message_of<data_error>([&] { length(row.announced, row.file_bytes); }) != "");
  }
}

TEST_CASE("what is written is read again") {
  detail::SafetensorsHeader header;
  header.metadata = {{"format", "pt"}, {"quote \" and \n", "重み\t"}};
  header.tensors["scalar"] = {detail::file_dtype_v<double>, {}, 0, 8};
  header.tensors["w \"1\"\\"] = {detail::file_dtype_v<float>, {2, 3}, 8, 32};
  header.tensors["empty"] = {detail::file_dtype_v<bf16>, {0, 3}, 32, 32};
  header.tensors["half"] = {detail::file_dtype_v<fp16>, {1}, 32, 34};
  const std::string bytes = detail::safetensors_header_bytes(header);
  CHECK(bytes.size() % 8 == 0);
  CHECK(bytes[8] == '{');
  std::array<unsigned char, 8> first{};
  std::copy_n(bytes.begin(), 8, first.begin());
  CHECK(detail::safetensors_header_length(first, bytes.size() + 34, "file") == bytes.size() - 8);
  const detail::SafetensorsHeader again = parse(bytes.substr(8), 34);
  CHECK(again.metadata == header.metadata);
  REQUIRE(again.tensors.size() == header.tensors.size());
  for (const auto& tensor : header.tensors) {
    const auto& [name, info] = tensor;
    CAPTURE(tensor.first);
    CHECK(again.tensors.at(name).dtype == info.dtype);
    CHECK(again.tensors.at(name).shape == info.shape);
    CHECK(again.tensors.at(name).begin == info.begin);
    CHECK(again.tensors.at(name).end == info.end);
  }
  CHECK(parse(detail::safetensors_header_bytes({}).substr(8), 0).tensors.empty());
  header.metadata["\xff"] = "x";
  CHECK_THROWS_AS(detail::safetensors_header_bytes(header), argument_error);
}
