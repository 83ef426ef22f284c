# Flags per instruction-set file of the kernels room. Only these files may hold wide instructions:
# each refuses to compile without its flags, nothing of them is inline elsewhere, and no LTO may
# carry code across. -ffp-contract=off stays (tri_flags): only written-out FMA is fused.

function(tri_isa file)
  set_property(SOURCE ${CMAKE_SOURCE_DIR}/src/kernels/${file} PROPERTY COMPILE_OPTIONS
               ${ARGN} -fno-lto)
endfunction()

if(CMAKE_SYSTEM_PROCESSOR MATCHES "x86_64|AMD64")
  set(avx2 -mavx2 -mfma -mf16c)
  set(avx512 ${avx2} -mavx512f -mavx512bw -mavx512dq -mavx512vl -mprefer-vector-width=512)
  set(vnni ${avx512} -mavx512vnni -mavx512vbmi)
  tri_isa(x86/lanes_avx2.c ${avx2})
  tri_isa(x86/lanes_avx512.c ${avx512})
  tri_isa(x86/quant_avx2.c ${avx2})
  tri_isa(x86/quant_avxvnni.c ${avx2} -mavxvnni)
  tri_isa(x86/quant_vnni.c ${vnni})
  tri_isa(x86/quant_vnni_one.c ${vnni})
  tri_isa(x86/quant_vnni_tiled.c ${vnni})
  tri_isa(x86/quant_amx.c ${vnni} -mamx-tile -mamx-int8)
  tri_isa(x86/quant_amx_tiled.c ${vnni} -mamx-tile -mamx-int8)
  tri_isa(x86/exact_amx.c ${vnni} -mamx-tile -mamx-bf16)
  tri_isa(x86/mla_amx.c ${vnni} -mamx-tile -mamx-bf16)
elseif(CMAKE_SYSTEM_PROCESSOR MATCHES "aarch64|arm64")
  tri_isa(arm/quant_dotprod.c -march=armv8.2-a+dotprod)
  tri_isa(arm/quant_i8mm.c -march=armv8.2-a+dotprod+i8mm)
endif()
