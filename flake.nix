# SPDX-License-Identifier: Apache-2.0
{
  description = "Ichor: manages Talos Linux clusters from Kubernetes";

  inputs.nixpkgs.url = "github:NixOS/nixpkgs/nixos-unstable";

  outputs =
    { nixpkgs, ... }:
    let
      systems = [
        "x86_64-linux"
        "aarch64-linux"
      ];
      forEachSystem = f: nixpkgs.lib.genAttrs systems (system: f nixpkgs.legacyPackages.${system});
    in
    {
      devShells = forEachSystem (pkgs: {
        default = pkgs.mkShell {
          packages = with pkgs; [
            # build, generate, verify
            go
            gcc
            git
            gnumake
            nix
            # measure
            nftables
            nmap
            util-linux
            # the web UI's tools
            nodejs
            # looking at a stack by hand
            etcd
            jq
            kubectl
            openssl
            talosctl
          ];
          # Use the toolchain above; never fetch another.
          GOTOOLCHAIN = "local";
        };
      });

      formatter = forEachSystem (pkgs: pkgs.nixfmt-rfc-style);
    };
}
