# dtrain.spdx, a bill of materials in SPDX 2.3: what this build contains or is linked with.
set(rows # name, version, license
    "oneDNN,${OneDNN_VERSION},Apache-2.0"
    "libjpeg-turbo,${JPEG_VERSION},IJG AND BSD-3-Clause AND Zlib"
    "libarchive,${ARCHIVE_VERSION},BSD-2-Clause"
    "xxHash,${XXHASH_VERSION},BSD-2-Clause"
    "cJSON,${CJSON_VERSION},MIT"
    "zlib,${ZLIB_VERSION},Zlib"
    "Random123,,BSD-3-Clause"
    "MPI,,NOASSERTION")
foreach(row PNG=libpng,libpng-2.0 WEBP=libwebp,BSD-3-Clause TIFF=libtiff,libtiff GIF=giflib,MIT)
    string(REGEX MATCH "^(.*)=(.*),(.*)$" row ${row})
    if(${CMAKE_MATCH_1}_FOUND)
        list(APPEND rows "${CMAKE_MATCH_2},${${CMAKE_MATCH_1}_VERSION},${CMAKE_MATCH_3}")
    endif()
endforeach()
if(DTRAIN_HWLOC AND HWLOC_FOUND)
    list(APPEND rows "hwloc,${HWLOC_VERSION},BSD-3-Clause")
endif()
if(DTRAIN_HAVE_CUDA)
    list(APPEND rows "CUDA,${CUDAToolkit_VERSION},LicenseRef-NVIDIA" "cuDNN,${CUDNN_VERSION},LicenseRef-NVIDIA"
        "NCCL,${NCCL_VERSION},BSD-3-Clause")
endif()

string(TIMESTAMP created %Y-%m-%dT%H:%M:%SZ UTC)
set(spdx "SPDXVersion: SPDX-2.3
DataLicense: CC0-1.0
SPDXID: SPDXRef-DOCUMENT
DocumentName: dtrain-${DTRAIN_VERSION}
DocumentNamespace: https://spdx.org/spdxdocs/dtrain-${DTRAIN_VERSION}
Creator: Tool: CMake-${CMAKE_VERSION}
Created: ${created}
Relationship: SPDXRef-DOCUMENT DESCRIBES SPDXRef-dtrain
")
function(spdx_package name version license)
    string(APPEND spdx "
PackageName: ${name}
SPDXID: SPDXRef-${name}
PackageDownloadLocation: NOASSERTION
FilesAnalyzed: false
PackageLicenseConcluded: ${license}
PackageLicenseDeclared: ${license}
PackageCopyrightText: NOASSERTION
")
    if(version)
        string(APPEND spdx "PackageVersion: ${version}\n")
    endif()
    if(NOT name STREQUAL "dtrain")
        string(APPEND spdx "Relationship: SPDXRef-dtrain DEPENDS_ON SPDXRef-${name}\n")
    endif()
    set(spdx "${spdx}" PARENT_SCOPE)
endfunction()
spdx_package(dtrain ${DTRAIN_VERSION} Apache-2.0)
foreach(row ${rows})
    string(REPLACE "," ";" row "${row}")
    list(GET row 0 name)
    list(GET row 1 version)
    list(GET row 2 license)
    spdx_package(${name} "${version}" "${license}")
endforeach()
if(DTRAIN_HAVE_CUDA)
    string(APPEND spdx "\nLicenseID: LicenseRef-NVIDIA\nLicenseName: NVIDIA Software License Agreement
ExtractedText: <text>https://docs.nvidia.com/cuda/eula/</text>\n")
endif()
file(CONFIGURE OUTPUT ${CMAKE_BINARY_DIR}/dtrain.spdx CONTENT "${spdx}" @ONLY)
