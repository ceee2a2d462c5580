# Lets Doxygen read comments as they stand in the headers. It changes lines and adds none:
# - the comment below `#pragma once` is about the file;
# - lines set in columns (with more than one space between words, or indented as code) stay so;
# - what stands in angle brackets is a template argument and no tag of HTML.

NR == 1 && /^#pragma once/ { line[++count] = "/// @file"; head = 1; next }
head && /^\/\// { sub(/^\/\//, "///") }
head && !/^\/\/\// { head = 0 }
{ line[++count] = $0 }

function is_comment(i) { return line[i] ~ /^ *\/\/\/( |$)/ }

function text_of(i) { return is_comment(i) ? substr(line[i], index(line[i], "///") + 4) : "none" }

function in_columns(i) {
  return text_of(i) ~ /[^ ]  +[^ ]|^   / || (pre && text_of(i) ~ /^  /) ||
    (pre && text_of(i) == "" && text_of(i + 1) ~ /[^ ]  +[^ ]|^   /)
}

function escaped(text) {
  gsub(/&/, "\\&amp;", text)
  gsub(/</, "\\&lt;", text)
  gsub(/>/, "\\&gt;", text)
  return text
}

function shown(i,   was_pre, text) {
  if (!is_comment(i)) {
    if (!match(line[i], /\/\/\/< /)) return line[i]
    return substr(line[i], 1, RSTART + 4) escaped(substr(line[i], RSTART + 5))
  }
  was_pre = pre
  pre = in_columns(i)
  text = escaped(text_of(i))
  if (!pre) return "/// " text
  gsub(/`/, "'", text)
  text = (was_pre ? "" : "<pre>") text
  if (in_columns(i + 1)) return "/// " text
  pre = 0
  return "/// " text "</pre>"
}

END {
  for (i = 1; i <= count; i++) print shown(i)
}
