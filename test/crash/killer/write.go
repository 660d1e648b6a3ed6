// SPDX-License-Identifier: Apache-2.0

package killer

import (
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"slices"
	"strings"

	"k8s.io/client-go/kubernetes/scheme"
)

// Write is a write in few words. The same write, tried again, is the same in all of them.
type Write struct {
	// Act is the verb and the resource, or the call.
	Act string
	// Object is what it is done to.
	Object string
	// State is what a written status says: phases and conditions, without times and words.
	State string
	// Operation is what a written status says of an operation: its journal, a claim, the versions that a machine is to have.
	Operation string
}

// key is the line of the journal.
func (w Write) key(moment Moment) string {
	return strings.TrimSpace(strings.Join([]string{string(moment), w.Act, w.Object, w.State}, " "))
}

// maxBody is how much of a request is looked at.
const maxBody = 4 << 20

// content is what tells objects and their states apart.
type content struct {
	Metadata struct {
		Name string `json:"name"`
	} `json:"metadata"`
	// Of events.
	InvolvedObject struct {
		Name string `json:"name"`
	} `json:"involvedObject"`
	Reason string `json:"reason"`
	Status status `json:"status"`
}

type status struct {
	Phase      string `json:"phase"`
	Conditions []struct {
		Type   string `json:"type"`
		Status string `json:"status"`
		Reason string `json:"reason"`
	} `json:"conditions"`
	Provisioning *struct {
		IntendedAt  string `json:"intendedAt"`
		AppliedAt   string `json:"appliedAt"`
		ConvergedAt string `json:"convergedAt"`
	} `json:"provisioning"`
	Discovery *struct {
		Phase string `json:"phase"`
	} `json:"discovery"`
	journal
}

// verbs of the methods that write. What isn't here reads.
var verbs = map[string]string{http.MethodPost: "create", http.MethodPut: "update", http.MethodPatch: "patch", http.MethodDelete: "delete"}

// describe says what a request writes; false if it only reads.
func describe(r *http.Request) (Write, bool) {
	verb, writes := verbs[r.Method]
	if !writes {
		return Write{}, false
	}
	resource, name := target(r.URL.Path)
	if strings.HasSuffix(resource, "reviews") {
		return Write{}, false // a question in the form of a create
	}
	c := read(r)
	if name == "" {
		name = c.Metadata.Name
	}
	if resource == "events" {
		name = c.InvolvedObject.Name + ":" + c.Reason
	}
	return Write{Act: verb + " " + resource, Object: name, State: c.Status.describe(), Operation: c.Status.operation(resource)}, true
}

// target is the resource with its subresource, and the object's name, of a path of the Kubernetes API.
func target(path string) (resource, name string) {
	parts := strings.Split(strings.Trim(path, "/"), "/")
	skip := 2 // api/VERSION
	if parts[0] == "apis" {
		skip = 3 // apis/GROUP/VERSION
	}
	parts = parts[min(skip, len(parts)):]
	if len(parts) > 2 && parts[0] == "namespaces" {
		parts = parts[2:]
	}
	if len(parts) == 0 {
		return path, ""
	}
	resource = parts[0]
	if len(parts) > 1 {
		name = parts[1]
	}
	if len(parts) > 2 {
		resource += "/" + strings.Join(parts[2:], "/")
	}
	return resource, name
}

// read takes what is known of the object out of a request's body. A body that is no object of a known kind says nothing.
func read(r *http.Request) content {
	var c content
	if r.GetBody == nil {
		return c
	}
	body, err := r.GetBody()
	if err != nil {
		return c
	}
	text, err := io.ReadAll(io.LimitReader(body, maxBody))
	if body.Close() != nil || err != nil {
		return c
	}
	if json.Unmarshal(text, &c) == nil {
		return c
	}
	if object, _, err := scheme.Codecs.UniversalDeserializer().Decode(text, nil, nil); err == nil {
		if text, err = json.Marshal(object); err == nil {
			_ = json.Unmarshal(text, &c) // what doesn't fit says nothing
		}
	}
	return c
}

// describe is how far an object got, and its conditions.
func (s *status) describe() string {
	parts := []string{s.Phase}
	if d := s.Discovery; d != nil {
		parts = append(parts, d.Phase)
	}
	if p := s.Provisioning; p != nil {
		for _, each := range []struct{ word, at string }{{"intended", p.IntendedAt}, {"applied", p.AppliedAt}, {"converged", p.ConvergedAt}} {
			if each.at != "" {
				parts = append(parts, each.word)
			}
		}
	}
	var conditions []string
	for _, c := range s.Conditions {
		conditions = append(conditions, fmt.Sprintf("%s=%s(%s)", c.Type, c.Status, c.Reason))
	}
	slices.Sort(conditions)
	return strings.TrimSpace(strings.Join(append(parts, conditions...), " "))
}
