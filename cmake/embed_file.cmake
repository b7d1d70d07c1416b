# Writes OUTPUT: the bytes of INPUT as string literals, one after the other, to be included as the value of
# a `const char[]`. Every byte is an escape: a raw string would be shorter, but g++ 12 drops blanks that follow
# a `\` at the end of a line of one, and a character of several bytes must not be cut.
file(READ "${INPUT}" bytes HEX)
string(REGEX REPLACE "(..)" "\\\\x\\1" escapes "${bytes}")
string(LENGTH "${escapes}" length)
set(out "")
foreach(at RANGE 0 ${length} 4000)  # 1000 bytes a literal
  string(SUBSTRING "${escapes}" ${at} 4000 piece)
  string(APPEND out "\"${piece}\"\n")
endforeach()
file(WRITE "${OUTPUT}" "${out}")
