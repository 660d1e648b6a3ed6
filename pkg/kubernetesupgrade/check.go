// SPDX-License-Identifier: Apache-2.0

package kubernetesupgrade

import (
	"fmt"
	"slices"
	"strings"

	"k8s.io/apimachinery/pkg/util/version"

	"maesh.dev/ichor/pkg/machineconfig"
)

// Component is a part of Kubernetes that runs on machines.
type Component string

// The components that an upgrade moves.
const (
	APIServer         Component = "kube-apiserver"
	ControllerManager Component = "kube-controller-manager"
	Scheduler         Component = "kube-scheduler"
	Kubelet           Component = "kubelet"
)

// ControlPlane are the components that are static pods of control planes, in the order in which they are upgraded: what
// talks to kube-apiserver may not be newer than it.
var ControlPlane = []Component{APIServer, ControllerManager, Scheduler}

// Machine is what was found on a machine.
type Machine struct {
	Name         string
	ControlPlane bool
	// Chosen machines are upgraded.
	Chosen bool
	// Talos is the version that runs.
	Talos string
	// Running are the versions of the components that were seen to run.
	Running map[Component]string
	// Settings are what the machine's configuration gives the components beyond what Talos does.
	Settings []Setting
}

// Kind of a setting.
type Kind string

// The kinds of settings that versions of Kubernetes take away.
const (
	Flag            Kind = "flag"
	FeatureGate     Kind = "feature gate"
	AdmissionPlugin Kind = "admission plugin"
)

// Setting is something that a version of Kubernetes may not know any more: the component doesn't start with it then.
type Setting struct {
	Component Component
	Kind      Kind
	Name      string
	// Where people find it, for instance: TalosConfigPatch x, cluster.apiServer.extraArgs.feature-gates
	Where string
}

// Finding is something that was found out before the start.
type Finding struct {
	// Check is what was looked at.
	Check string
	// Blocks the upgrade; else it is worth a look.
	Blocks  bool
	Message string
}

// The checks. Each is in Checked whether something was found or not.
const (
	CheckPath    = "Path"
	CheckSkew    = "VersionSkew"
	CheckTalos   = "TalosCompatibility"
	CheckRemoved = "RemovedSettings"
	// CheckAPIVersions is about the versions of APIs that somebody uses.
	CheckAPIVersions = "RemovedAPIs"
)

// judge holds what the checks share.
type judge struct {
	to       *version.Version
	machines []Machine
	versions map[string]map[Component]*version.Version
	findings []Finding
}

func (j *judge) find(check, format string, arguments ...any) {
	j.findings = append(j.findings, Finding{Check: check, Blocks: true, Message: fmt.Sprintf(format, arguments...)})
}

// Check judges an upgrade of the chosen machines. from is the lowest version that runs on them; empty if none is known.
func Check(machines []Machine, to string) (from string, findings []Finding) {
	target, err := parse(to)
	if err != nil {
		return "", []Finding{{Check: CheckPath, Blocks: true, Message: err.Error()}}
	}
	j := &judge{to: target, machines: machines, versions: map[string]map[Component]*version.Version{}}
	if !j.read() {
		return "", j.findings
	}
	lowest := j.lowest()
	if lowest == nil {
		return "", j.findings
	}
	if why := checkPath(lowest, target); why != "" {
		j.find(CheckPath, "%s", why)
		return WithV(lowest.String()), j.findings
	}
	j.takenBack()
	j.skew()
	j.talos()
	j.removed(lowest)
	return WithV(lowest.String()), j.findings
}

// read parses what runs; a version that isn't known decides nothing, so it blocks.
func (j *judge) read() bool {
	for _, m := range j.machines {
		j.versions[m.Name] = map[Component]*version.Version{}
		for _, component := range componentsOf(m) {
			text := m.Running[component]
			if text == "" {
				j.find(CheckPath, "%s: the version of its %s isn't known, as nothing of it is seen to run; see that the machine is Ready first", m.Name, component)
				continue
			}
			parsed, err := parse(text)
			if err != nil {
				j.find(CheckPath, "%s: %s: %s", m.Name, component, err)
				continue
			}
			j.versions[m.Name][component] = parsed
		}
	}
	return len(j.findings) == 0
}

func componentsOf(m Machine) []Component {
	if m.ControlPlane {
		return append(slices.Clone(ControlPlane), Kubelet)
	}
	return []Component{Kubelet}
}

// lowest version of what is to be upgraded.
func (j *judge) lowest() *version.Version {
	var lowest *version.Version
	for _, m := range j.machines {
		if !m.Chosen {
			continue
		}
		for _, running := range j.versions[m.Name] {
			if lowest == nil || running.LessThan(lowest) {
				lowest = running
			}
		}
	}
	return lowest
}

// takenBack looks for components that are ahead of the lowest, and of where they would go: an upgrade to a later version was
// begun before.
func (j *judge) takenBack() {
	for _, m := range j.machines {
		if !m.Chosen {
			continue
		}
		for _, component := range componentsOf(m) {
			if running := j.versions[m.Name][component]; j.to.LessThan(running) {
				j.find(CheckPath, "%s: its %s is v%s, and v%s is older: Kubernetes can't be taken back; upgrade the others to v%s", m.Name, component, running, j.to, running)
			}
		}
	}
}

// then is the version of a component after the upgrade.
func (j *judge) then(m Machine, component Component) *version.Version {
	if m.Chosen {
		return j.to
	}
	return j.versions[m.Name][component]
}

// skew looks at every component against every kube-apiserver, now, on the way, and afterwards: none may be newer than any,
// and none too old for the newest. Source: Kubernetes, version skew policy.
func (j *judge) skew() {
	var oldest, newest *version.Version
	var oldestOn string
	for _, m := range j.machines {
		if !m.ControlPlane {
			continue
		}
		after := j.then(m, APIServer)
		if oldest == nil || after.LessThan(oldest) {
			oldest, oldestOn = after, m.Name
		}
		if newest == nil || newest.LessThan(after) {
			newest = after
		}
	}
	if oldest == nil {
		j.find(CheckSkew, "the cluster has no control plane that is known")
		return
	}
	if minors(newest, oldest) > 1 {
		j.find(CheckSkew, "kube-apiserver would be v%s, and stays v%s on %s: they may differ by one minor version; upgrade the control planes together", newest, oldest, oldestOn)
	}
	for _, m := range j.machines {
		for _, component := range componentsOf(m) {
			if component != APIServer {
				j.against(m, component, oldest, newest, oldestOn)
			}
		}
	}
}

func (j *judge) against(m Machine, component Component, oldest, newest *version.Version, oldestOn string) {
	now, after := j.versions[m.Name][component], j.then(m, component)
	most := 1
	if component == Kubelet {
		most = maxKubeletSkew
	}
	switch {
	case minors(after, oldest) > 0:
		j.find(CheckSkew, "%s: its %s would be v%s, newer than kube-apiserver v%s on %s; upgrade the control planes first", m.Name, component, after, oldest, oldestOn)
	case minors(newest, after) > most:
		j.find(CheckSkew, "%s: its %s stays v%s, which kube-apiserver v%s is too new for (%d minor versions at most); upgrade it first, or with the others", m.Name, component, after, newest, most)
	case minors(newest, now) > most:
		j.find(CheckSkew, "%s: its %s is v%s until its turn, which kube-apiserver v%s is too new for (%d minor versions at most); upgrade it first", m.Name, component, now, newest, most)
	}
}

// talos looks whether the Talos of each machine runs the new version.
func (j *judge) talos() {
	for _, m := range j.machines {
		if !m.Chosen {
			continue
		}
		if m.Talos == "" {
			j.find(CheckTalos, "%s: the version of its Talos isn't known; see that the machine answers first", m.Name)
			continue
		}
		if err := machineconfig.CheckKubernetesOn(WithV(j.to.String()), m.Talos); err != nil {
			j.find(CheckTalos, "%s: %s; upgrade Talos first", m.Name, err)
		}
	}
}

// removed looks for what the components are given and won't know any more. They don't start with it.
func (j *judge) removed(from *version.Version) {
	where := map[string][]string{}
	var messages []string
	for _, m := range j.machines {
		if !m.Chosen {
			continue
		}
		for _, setting := range m.Settings {
			since := removedIn(setting, from, j.to)
			if since == "" {
				continue
			}
			message := fmt.Sprintf("%s: %s %s of %s is gone in %s (%s)", setting.Where, setting.Kind, setting.Name, setting.Component, since, source(since))
			if where[message] == nil {
				messages = append(messages, message)
			}
			where[message] = append(where[message], m.Name)
		}
	}
	for _, message := range messages {
		names := where[message]
		slices.Sort(names)
		j.find(CheckRemoved, "%s; take it out. It concerns %s", message, strings.Join(slices.Compact(names), ", "))
	}
}
