# Dependencies of Troop. Read by the build and, after installation, by troopConfig.cmake, so that
# both find the same targets.

include(CMakeFindDependencyMacro)
foreach(package Threads PkgConfig ZLIB GIF fmt spdlog nlohmann_json tomlplusplus cereal)
  if(CMAKE_FIND_PACKAGE_NAME STREQUAL "troop")
    find_dependency(${package})
  else()
    find_package(${package} REQUIRED)
  endif()
endforeach()

# troop_pkg_target(zmq libzmq): defines PkgConfig::zmq, at most once per project.
function(troop_pkg_target name module)
  if(NOT TARGET PkgConfig::${name})
    pkg_check_modules(${name} REQUIRED IMPORTED_TARGET GLOBAL ${module})
  endif()
endfunction()
troop_pkg_target(zmq libzmq)
troop_pkg_target(sodium libsodium)
troop_pkg_target(lz4 liblz4)
troop_pkg_target(zstd libzstd)
troop_pkg_target(png libpng)
troop_pkg_target(jpeg libjpeg)

# A wheel links Cairo and its dependencies statically: the shared library loads X11, which
# auditwheel assumes on every machine, and which containers lack (docs/decisions/0028-wheels.md).
if(TROOP_PLOTS AND TROOP_WHEEL AND NOT TARGET PkgConfig::cairo)
  pkg_check_modules(cairo_headers REQUIRED cairo>=1.16 cairo-svg>=1.16)
  add_library(PkgConfig::cairo INTERFACE IMPORTED GLOBAL)
  target_include_directories(PkgConfig::cairo INTERFACE ${cairo_headers_INCLUDE_DIRS})
  foreach(archive cairo pixman-1 fontconfig freetype png16 expat brotlidec brotlicommon)
    find_library(TROOP_STATIC_${archive} lib${archive}.a REQUIRED)
    mark_as_advanced(TROOP_STATIC_${archive})
    target_link_libraries(PkgConfig::cairo INTERFACE ${TROOP_STATIC_${archive}})
  endforeach()
  target_link_libraries(PkgConfig::cairo INTERFACE ZLIB::ZLIB)
endif()

# Only plots need Cairo: without it, or with TROOP_PLOTS=OFF, everything else is built. An installed
# Troop needs it for programs that link troop::plot, troop::fleet or troop::apps.
if(TROOP_PLOTS AND NOT TARGET PkgConfig::cairo)
  pkg_check_modules(cairo QUIET IMPORTED_TARGET GLOBAL cairo>=1.16 cairo-svg>=1.16)
  if(NOT cairo_FOUND AND NOT CMAKE_FIND_PACKAGE_NAME STREQUAL "troop")
    message(STATUS "Cairo not found: building without plots")
  endif()
endif()

# Only the tar reader and its decompression. The shared library would load libxml2 and 31 MB of ICU
# data for formats that Troop does not read (docs/decisions/0022-archives-yaml-and-http.md).
if(NOT TARGET LibArchive::tar_xz)
  add_library(LibArchive::tar_xz INTERFACE IMPORTED GLOBAL)
  find_library(ARCHIVE_STATIC_LIBRARY libarchive.a)
  find_library(ARCHIVE_BZ2_LIBRARY bz2)
  mark_as_advanced(ARCHIVE_STATIC_LIBRARY ARCHIVE_BZ2_LIBRARY)
  if(ARCHIVE_STATIC_LIBRARY AND ARCHIVE_BZ2_LIBRARY)
    troop_pkg_target(lzma liblzma)
    target_link_libraries(LibArchive::tar_xz INTERFACE ${ARCHIVE_STATIC_LIBRARY} PkgConfig::lzma
      PkgConfig::lz4 PkgConfig::zstd ZLIB::ZLIB ${ARCHIVE_BZ2_LIBRARY})
  else()
    troop_pkg_target(archive libarchive)
    target_link_libraries(LibArchive::tar_xz INTERFACE PkgConfig::archive)
  endif()
endif()

# Debian's dnnl-config.cmake requires OpenCL headers that only its GPU part needs.
if(NOT TARGET DNNL::dnnl)
  find_path(DNNL_INCLUDE_DIR dnnl.hpp REQUIRED)
  find_library(DNNL_LIBRARY dnnl REQUIRED)
  mark_as_advanced(DNNL_INCLUDE_DIR DNNL_LIBRARY)
  add_library(DNNL::dnnl UNKNOWN IMPORTED)
  set_target_properties(DNNL::dnnl PROPERTIES IMPORTED_LOCATION ${DNNL_LIBRARY}
    INTERFACE_INCLUDE_DIRECTORIES ${DNNL_INCLUDE_DIR})
endif()

# Only the headers: some versions of CLI11 install no CMake package.
if(NOT TARGET CLI11::CLI11)
  find_path(CLI11_INCLUDE_DIR CLI/CLI.hpp REQUIRED)
  mark_as_advanced(CLI11_INCLUDE_DIR)
  add_library(CLI11::CLI11 INTERFACE IMPORTED)
  set_target_properties(CLI11::CLI11 PROPERTIES INTERFACE_INCLUDE_DIRECTORIES ${CLI11_INCLUDE_DIR})
endif()
