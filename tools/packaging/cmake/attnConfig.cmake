# find_package(attn): attn::attn is the shared library, attn::static the static one, attn::header
# the header alone, for a program that defines ATTN_IMPLEMENTATION.
get_filename_component(attn_prefix "@PREFIX@" ABSOLUTE)

if(NOT TARGET attn::header)
  add_library(attn::header INTERFACE IMPORTED)
  set_target_properties(attn::header PROPERTIES
    INTERFACE_INCLUDE_DIRECTORIES "@INCLUDE@" INTERFACE_LINK_LIBRARIES "m")
  add_library(attn::attn SHARED IMPORTED)
  set_target_properties(attn::attn PROPERTIES
    IMPORTED_LOCATION "@LIBRARY@" IMPORTED_SONAME "@SONAME@"
    INTERFACE_LINK_LIBRARIES attn::header)
  add_library(attn::static STATIC IMPORTED)
  set_target_properties(attn::static PROPERTIES
    IMPORTED_LOCATION "@ARCHIVE@" IMPORTED_LINK_INTERFACE_LANGUAGES C
    INTERFACE_LINK_LIBRARIES "attn::header@STATIC_NEEDS@")
endif()
