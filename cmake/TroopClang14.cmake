# Clang before 16 does not compile two things that GCC 12 does: std::ranges::unique, whose result it
# can't instantiate with libstdc++ (github.com/llvm/llvm-project/issues/44178), and lambdas that
# capture a structured binding. For such a Clang a few sources are built from copies in the build
# folder, where these are spelt otherwise. A line of this list goes when its source is.

# troop_spell_for_clang14(sources): replaces those of the list by their copies.
function(troop_spell_for_clang14 variable)
  if(NOT CMAKE_CXX_COMPILER_ID MATCHES "Clang" OR
     CMAKE_CXX_COMPILER_VERSION VERSION_GREATER_EQUAL 16)
    return()
  endif()
  set(spelt "")
  foreach(source IN LISTS ${variable})
    file(RELATIVE_PATH name ${CMAKE_SOURCE_DIR} ${source})
    file(READ ${source} text)
    set(before "${text}")
    if(name STREQUAL "replay/journal_read.cc")
      string(REPLACE "const auto same = std::ranges::unique(contents->segments, {}, &Segment::id)"
        "const std::span same(std::unique(contents->segments.begin(), contents->segments.end(), \
[](const auto& a, const auto& b) { return a->id() == b->id(); }), contents->segments.end())"
        text "${text}")
      string(REPLACE "erase(same.begin(), same.end())"
        "erase(contents->segments.end() - std::ptrdiff_t(same.size()), contents->segments.end())"
        text "${text}")
    elseif(name STREQUAL "replay/table_draw.cc")
      string(REPLACE "std::ranges::unique(old).begin()" "std::unique(old.begin(), old.end())"
        text "${text}")
    elseif(name STREQUAL "replay/table_server.cc")
      string(REPLACE "[&who](" "[&who = who](" text "${text}")
    endif()
    if(NOT text STREQUAL before)
      set_property(DIRECTORY APPEND PROPERTY CMAKE_CONFIGURE_DEPENDS ${source})
      set(source ${CMAKE_BINARY_DIR}/clang14/${name})
      file(CONFIGURE OUTPUT ${source} CONTENT "${text}" @ONLY)
    endif()
    list(APPEND spelt ${source})
  endforeach()
  set(${variable} ${spelt} PARENT_SCOPE)
endfunction()
