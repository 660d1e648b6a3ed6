// SPDX-License-Identifier: Apache-2.0

package killer

import (
	"encoding/json"
	"fmt"
	"strings"
)

// unclaimed is what a cluster's status says that no operation holds.
const unclaimed = "claim of nobody"

// journal is what statuses say of an operation.
type journal struct {
	Current string `json:"current"`
	// Machines are a list in operations, and numbers in patches.
	Machines json.RawMessage `json:"machines"`
	// Of clusters.
	ActiveOperation *struct {
		Name string `json:"name"`
	} `json:"activeOperation"`
	// Of machines.
	SettledVersions *struct {
		Talos       string `json:"talos"`
		SchematicID string `json:"schematicID"`
	} `json:"settledVersions"`
}

// operation is what a written status says of an operation, without times and words; empty if nothing.
func (s *status) operation(resource string) string {
	switch {
	case resource == "talosoperations/status":
		return s.steps()
	case resource == "talosclusters/status" && s.ActiveOperation != nil:
		return "claim of " + s.ActiveOperation.Name
	case resource == "talosclusters/status":
		return unclaimed
	case resource == "talosmachines/status" && s.SettledVersions != nil:
		return fmt.Sprintf("settled at %s %.12s", s.SettledVersions.Talos, s.SettledVersions.SchematicID)
	}
	return ""
}

// steps is how far an operation is on each machine.
func (s *status) steps() string {
	var machines []struct {
		Name     string `json:"name"`
		Step     string `json:"step"`
		State    string `json:"state"`
		BootID   string `json:"bootID"`
		Cordoned bool   `json:"cordoned"`
		Done     bool   `json:"done"`
	}
	if len(s.Machines) > 0 && json.Unmarshal(s.Machines, &machines) != nil {
		return ""
	}
	parts := []string{s.Phase, "at", s.Current}
	for _, m := range machines {
		text := fmt.Sprintf("%.8s=%s/%s", m.Name, m.Step, m.State)
		for _, each := range []struct {
			is   bool
			word string
		}{{m.BootID != "", "+boot " + m.BootID}, {m.Cordoned, "+cordoned"}, {m.Done, "+done"}} {
			if each.is {
				text += each.word
			}
		}
		parts = append(parts, text)
	}
	return strings.Join(parts, " ")
}

// claimed tells whether a claim of the same cluster was killed at before.
func (k *Killer) claimed(w Write) bool {
	for key := range k.seen {
		if strings.Contains(key, w.Act+" "+w.Object+" claim of ") {
			return true
		}
	}
	return false
}
