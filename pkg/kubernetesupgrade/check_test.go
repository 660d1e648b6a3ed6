// SPDX-License-Identifier: Apache-2.0

package kubernetesupgrade

import (
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
)

// controlPlane and worker run one version each, and are to be upgraded.
func controlPlane(name, version string) Machine {
	return Machine{Name: name, ControlPlane: true, Chosen: true, Talos: "v1.14.5", Running: map[Component]string{
		APIServer: version, ControllerManager: version, Scheduler: version, Kubelet: version,
	}}
}

func worker(name, version string) Machine {
	return Machine{Name: name, Chosen: true, Talos: "v1.14.5", Running: map[Component]string{Kubelet: version}}
}

func stays(m Machine) Machine { m.Chosen = false; return m }

func runs(m Machine, component Component, version string) Machine {
	m.Running[component] = version
	return m
}

func with(m Machine, settings ...Setting) Machine { m.Settings = settings; return m }

func onTalos(m Machine, version string) Machine { m.Talos = version; return m }

func TestWhatKeepsAClusterFromAnUpgrade(t *testing.T) {
	t.Parallel()
	gate := Setting{Component: APIServer, Kind: FeatureGate, Name: "SidecarContainers", Where: "TalosConfigPatch sidecars, cluster.apiServer.extraArgs.feature-gates"}
	for name, c := range map[string]struct {
		machines []Machine
		to       string
		from     string
		// check and words of the only finding; empty if there is none.
		check, words string
	}{
		"to another patch version":                {machines: []Machine{controlPlane("cp-1", "v1.36.4"), worker("w", "v1.36.4")}, to: "v1.36.6", from: "v1.36.4"},
		"to the next minor version":               {machines: []Machine{controlPlane("cp-1", "v1.36.4"), worker("w", "v1.36.4")}, to: "v1.37.2", from: "v1.36.4"},
		"nothing to do":                           {machines: []Machine{controlPlane("cp-1", "v1.36.6")}, to: "v1.36.6", from: "v1.36.6"},
		"going on after a half":                   {machines: []Machine{runs(controlPlane("cp-1", "v1.36.4"), APIServer, "v1.36.6")}, to: "1.36.6", from: "v1.36.4"},
		"two minor versions":                      {machines: []Machine{controlPlane("cp-1", "v1.35.3")}, to: "v1.37.2", from: "v1.35.3", check: CheckPath, words: "upgrade to v1.36 first"},
		"back":                                    {machines: []Machine{controlPlane("cp-1", "v1.36.6")}, to: "v1.36.4", from: "v1.36.6", check: CheckPath, words: "can't be taken back"},
		"no version":                              {machines: []Machine{controlPlane("cp-1", "v1.36.6")}, to: "latest", check: CheckPath, words: "is no version of Kubernetes"},
		"nothing is seen to run":                  {machines: []Machine{runs(controlPlane("cp-1", "v1.36.4"), Scheduler, "")}, to: "v1.36.6", check: CheckPath, words: "cp-1: the version of its kube-scheduler isn't known"},
		"an old kubelet is left":                  {machines: []Machine{controlPlane("cp-1", "v1.36.4"), stays(worker("w", "v1.33.2"))}, to: "v1.37.0", from: "v1.36.4", check: CheckSkew, words: "w: its kubelet stays v1.33.2"},
		"an old kubelet that may be":              {machines: []Machine{controlPlane("cp-1", "v1.36.4"), stays(worker("w", "v1.34.2"))}, to: "v1.37.0", from: "v1.36.4"},
		"a worker before the rest":                {machines: []Machine{stays(controlPlane("cp-1", "v1.36.4")), worker("w", "v1.36.4")}, to: "v1.37.0", from: "v1.36.4", check: CheckSkew, words: "w: its kubelet would be v1.37.0, newer than kube-apiserver v1.36.4 on cp-1"},
		"a kubelet that is too new":               {machines: []Machine{controlPlane("cp-1", "v1.35.4"), stays(worker("w", "v1.37.2"))}, to: "v1.36.6", from: "v1.35.4", check: CheckSkew, words: "w: its kubelet would be v1.37.2, newer"},
		"an upgrade to a later version was begun": {machines: []Machine{runs(controlPlane("cp-1", "v1.36.4"), APIServer, "v1.37.0")}, to: "v1.36.6", from: "v1.36.4", check: CheckPath, words: "cp-1: its kube-apiserver is v1.37.0, and v1.36.6 is older: Kubernetes can't be taken back"},
		"it goes on":                              {machines: []Machine{runs(controlPlane("cp-1", "v1.36.4"), APIServer, "v1.37.0")}, to: "v1.37.0", from: "v1.36.4"},
		"a control plane is left":                 {machines: []Machine{controlPlane("cp-1", "v1.36.4"), stays(controlPlane("cp-2", "v1.36.4"))}, to: "v1.36.6", from: "v1.36.4"},
		"Talos is too old":                        {machines: []Machine{onTalos(controlPlane("cp-1", "v1.36.4"), "v1.13.9")}, to: "v1.37.0", from: "v1.36.4", check: CheckTalos, words: "cp-1: version of Kubernetes 1.37.0 is too new to be used with Talos 1.13.9; upgrade Talos first"},
		"Talos 1.14 is too new":                   {machines: []Machine{worker("w", "v1.31.4"), stays(controlPlane("cp-1", "v1.31.9"))}, to: "v1.31.9", from: "v1.31.4", check: CheckTalos, words: "w: version of Kubernetes v1.31.9 is not supported by Talos v1.14.5, which runs 1.32 to 1.37"},
		"Talos isn't known":                       {machines: []Machine{onTalos(controlPlane("cp-1", "v1.36.4"), "")}, to: "v1.36.6", from: "v1.36.4", check: CheckTalos, words: "cp-1: the version of its Talos isn't known"},
		"a feature gate is gone":                  {machines: []Machine{with(controlPlane("cp-1", "v1.36.4"), gate), with(controlPlane("cp-2", "v1.36.4"), gate)}, to: "v1.37.0", from: "v1.36.4", check: CheckRemoved, words: "TalosConfigPatch sidecars, cluster.apiServer.extraArgs.feature-gates: feature gate SidecarContainers of kube-apiserver is gone in 1.37 (Kubernetes, CHANGELOG-1.37.md); take it out. It concerns cp-1, cp-2"},
		"the gate is there till then":             {machines: []Machine{with(controlPlane("cp-1", "v1.36.4"), gate)}, to: "v1.36.6", from: "v1.36.4"},
		"a flag is gone": {
			machines: []Machine{stays(controlPlane("cp-1", "v1.35.0")), with(worker("w", "v1.34.1"), Setting{Component: Kubelet, Kind: Flag, Name: "pod-infra-container-image", Where: "here"})},
			to:       "v1.35.0", from: "v1.34.1", check: CheckRemoved, words: "here: flag pod-infra-container-image of kubelet is gone in 1.35",
		},
		"another component's flag": {
			machines: []Machine{with(controlPlane("cp-1", "v1.34.1"), Setting{Component: APIServer, Kind: Flag, Name: "pod-infra-container-image", Where: "here"})},
			to:       "v1.35.0", from: "v1.34.1",
		},
		"an admission plugin is gone": {
			machines: []Machine{with(controlPlane("cp-1", "v1.36.4"), Setting{Component: APIServer, Kind: AdmissionPlugin, Name: "JobValidation", Where: "here"})},
			to:       "v1.37.1", from: "v1.36.4", check: CheckRemoved, words: "admission plugin JobValidation",
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			from, findings := Check(c.machines, c.to)
			if from != c.from {
				t.Errorf("from %q, want %q", from, c.from)
			}
			switch {
			case c.check == "" && len(findings) > 0:
				t.Errorf("found %v", findings)
			case c.check == "":
			case len(findings) != 1 || findings[0].Check != c.check || !findings[0].Blocks || !strings.Contains(findings[0].Message, c.words):
				t.Errorf("found %v, want one of %s: %s", findings, c.check, c.words)
			}
		})
	}
}

func TestTheTablesAreInOrderAndNameThingsOnce(t *testing.T) {
	t.Parallel()
	seen := map[string]uint{}
	for i, removal := range removals {
		if i > 0 && removal.minor != removals[i-1].minor+1 {
			t.Errorf("1.%d follows 1.%d", removal.minor, removals[i-1].minor)
		}
		for _, gate := range removal.gates {
			if before, there := seen[gate]; there {
				t.Errorf("%s went in 1.%d and in 1.%d", gate, before, removal.minor)
			}
			seen[gate] = removal.minor
		}
	}
	if diff := cmp.Diff(uint(37), KnownUpTo()); diff != "" {
		t.Error(diff)
	}
}
