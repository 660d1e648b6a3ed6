// SPDX-License-Identifier: Apache-2.0

package screen

import (
	"fmt"
	"strings"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/yaml"

	"maesh.dev/ichor/pkg/apis/ichor/v1alpha1"
)

// Patch draws a patch: what it is for, how far it has come, who can't have it, and what it sets.
func Patch(patch *v1alpha1.TalosConfigPatch, now time.Time, style Style) string {
	p := &page{style: style}
	p.line(style.Heading(patch.Name) + gap + style.Faint("patch of TalosCluster "+patch.Spec.Target.ClusterRef.Name))
	counts, target := patch.Status.Machines, &patch.Spec.Target
	about := &fields{}
	who := "all machines"
	if target.Role != "" {
		who = string(target.Role) + " machines"
	}
	if target.MachineSelector != nil {
		who += " with the labels " + metav1.FormatLabelSelector(target.MachineSelector)
	}
	if len(target.MachineNames) > 0 {
		who += " named " + listed(target.MachineNames, len(target.MachineNames), nil)
	}
	about.add("for", who)
	if patch.Spec.Priority != nil {
		about.add("priority", fmt.Sprint(*patch.Spec.Priority))
	}
	if patch.Spec.Disabled {
		about.add("disabled", "it is in no machine's configuration")
	}
	about.add("machines", fmt.Sprintf("%d meant, %d run with it, %d wait for a reboot, %d can't have it", counts.Matched, counts.Applied, counts.PendingReboot, counts.Refused))
	p.block("about", about.lines(style, gap))
	var refused []string
	for _, refusal := range patch.Status.Refusals {
		refused = append(refused, strings.TrimSpace(refusal.Machine+gap+refusal.Path+gap+style.Bad(refusal.Reason)))
	}
	p.block("refused by", indented(refused))
	var conditions [][]string
	for _, condition := range patch.Status.Conditions {
		conditions = append(conditions, []string{condition.Type, string(condition.Status), Age(now, condition.LastTransitionTime.Time), condition.Message})
	}
	p.block("conditions", indented(Columns(conditions)))
	p.block("sets", indented(sets(&patch.Spec)))
	return p.text.String()
}

// sets is what is Talos' own in a patch, in YAML.
func sets(spec *v1alpha1.TalosConfigPatchSpec) []string {
	var lines []string
	add := func(name string, raw []byte) {
		text, err := yaml.JSONToYAML(raw)
		if err != nil {
			text = raw
		}
		prefix := ""
		if name != "" {
			lines, prefix = append(lines, name+":"), gap
		}
		for line := range strings.Lines(string(text)) {
			lines = append(lines, prefix+strings.TrimRight(line, "\n"))
		}
	}
	if spec.Machine != nil {
		add("machine", spec.Machine.Raw)
	}
	if spec.Cluster != nil {
		add("cluster", spec.Cluster.Raw)
	}
	for _, document := range spec.Documents {
		lines = append(lines, "---")
		add("", document.Raw)
	}
	for _, value := range spec.SecretValues {
		lines = append(lines, fmt.Sprintf("%s comes from key %s of Secret %s", value.Path, value.SecretKeyRef.Key, value.SecretKeyRef.Name))
	}
	return lines
}
