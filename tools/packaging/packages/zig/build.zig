// attn as a Zig package. The sources have no build.zig at their top, so they are a dependency of this one.
// In your build.zig: exe.linkLibrary(b.dependency("attn", .{ .target = target }).artifact("attn"));
const std = @import("std");

pub fn build(b: *std.Build) void {
    const source = b.dependency("source", .{}).path("");
    const library = b.addLibrary(.{
        .name = "attn",
        .linkage = .static,
        .root_module = b.createModule(.{
            .target = b.standardTargetOptions(.{}),
            .optimize = .ReleaseFast, // in Debug the kernels would be too slow to use
            .link_libc = true,
        }),
    });
    const implementation = b.addWriteFiles().add("attn.c",
        \\#define ATTN_IMPLEMENTATION
        \\#include "attn.h"
        \\
    );
    library.root_module.addIncludePath(source);
    library.root_module.addCSourceFile(.{ .file = implementation, .flags = &.{"-std=c99"} });
    library.installHeader(source.path(b, "attn.h"), "attn.h");
    b.installArtifact(library);
}
