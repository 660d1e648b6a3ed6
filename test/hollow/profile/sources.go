// SPDX-License-Identifier: Apache-2.0

package profile

// sources tell where the differences come from, by field of Profile: the section of the contract (talos-contract.md) with
// what it says there, the recordings in testdata, or Talos' own sources.
var sources = map[string][]string{
	"Minor":     {"contract, head: 1.13 and 1.14; §1.6: ≤1.12"},
	"Sha":       {"no client looks at it"},
	"Built":     {"no client looks at it"},
	"GoVersion": {"no client looks at it"},
	"OldestUpgradeFrom": {
		"contract §7: 1.13: hosts ≥1.11.0; 1.14: hosts ≥1.12.0",
		"Talos 1.12: pkg/machinery/compatibility/talos112, MinimumHostUpgradeVersion 1.10.0",
	},
	"NewestDowngradeFrom": {
		"contract §7: 1.13: downgrade from <1.15; 1.14: <1.16",
		"Talos 1.12: pkg/machinery/compatibility/talos112, MaximumHostDowngradeVersion 1.14.0, not inclusive",
	},
	"OldestKubernetes": {
		"contract §7: 1.13: K8s 1.31–1.36; 1.14: K8s 1.32–1.37",
		"Talos 1.12: pkg/machinery/compatibility/talos112, MinimumKubernetesVersion 1.30.0",
	},
	"NewestKubernetes": {
		"contract §7: 1.13: K8s 1.31–1.36; 1.14: K8s 1.32–1.37",
		"Talos 1.12: pkg/machinery/compatibility/talos112, MaximumKubernetesVersion 1.35.99",
	},
	"MaintenanceServer": {
		"contract §0.1: 1.13 has no separate maintenance server any more (≤1.12 had internal/app/maintenance with its own handlers)",
		"contract §1.6: Version/Upgrade/Reset/Meta* ⇒ Unimplemented \"API is not implemented in maintenance mode\"; Apply only modes TRY/REBOOT/AUTO; COSI readable",
		"contract §1.6: 1.14: same model as 1.13",
		"recording rpc.md, column 1.12 maintenance",
	},
	"Containerd": {
		"contract §0.5: LifecycleService.Upgrade (new, 1.13+); §5.2: missing service (<1.13) ⇒ Unimplemented",
		"Talos 1.12: API reference: no ImageService, LifecycleService, DebugService",
	},
	"RebootsOnApply": {
		"contract §0.4: 1.14 never reboots on apply (AUTO≡NO_REBOOT); §4: REBOOT ⇒ Unimplemented \"the REBOOT mode is not supported, …\" (maintenance: → NO_REBOOT)",
		"contract §10: CanApplyImmediate is one of the differences; for 1.12 nothing else than 1.13 is known",
	},
	"RefusesUnknownModes": {"contract §4, 1.14: unknown mode ⇒ InvalidArgument"},
	"RunsFromMemory": {
		"contract §4: 1.14: install section no longer required",
		"contract §8: in 1.14 with neither → node never installs and continues from RAM",
	},
	"StreamErrorsInData": {"contract §9.17: in 1.14 stream errors come as gRPC status, no longer in Data.metadata.error"},
	"MissingTypes": {
		"Talos 1.12: API reference, messages of resource definitions: none for these; contract §1.1: APIServiceConfig is how 1.13 runs maintenance in apid",
	},
	"ExtraTypes": {
		"contract §2: 1.14 adds runtime.BootID (BootIDs.runtime.talos.dev / boot-id), reader-readable",
		"contract §2: 1.14 adds ImageFactorySchematics.runtime.talos.dev / image-factory-schematic {SchematicID,Flavor,APIURL}",
		"Talos 1.12: API reference, secrets: MaintenanceServiceCertsSpec",
	},
	"MissingKinds": {
		"contract §8: kinds in 1.13; Talos 1.12: configuration reference: no page for these",
		"contract §4: configloader is strict (unknown kind or unknown key ⇒ error)",
	},
	"MissingKeys": {"contract §8: UserVolumeConfig{…, mount} in 1.13; Talos 1.12: configuration reference: no such key"},
	"LaterKinds":  {"contract §8: 1.14 adds …"},
	"NotPlayed":   {"contract §1.6, §2, §5.2 (Bootstrap)"},
}
