// SPDX-License-Identifier: Apache-2.0

package documents_test

import (
	"bytes"
	"encoding/json"
	"flag"
	"fmt"
	"maps"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"

	"go.yaml.in/yaml/v4"

	"maesh.dev/ichor/pkg/machineconfig"
	"maesh.dev/ichor/test/documents"
)

var (
	changes = flag.Int("changes", 50, "how many hand-made changes each of the four machines gets")
	seed    = flag.Uint64("seed", 20261130, "which changes these are")
)

// Somebody changes a machine by hand, at a random place of a configuration that has every kind of document: that is one
// item of drift, at that place, which shows no secret. Where Ichor says that no reboot is needed, the machine takes the
// change, and the product's controller mends it; where it says that one is, a machine that knows says so too, and the
// controller tells of it and leaves the machine alone.
func TestHandMadeChanges(t *testing.T) {
	t.Parallel()
	for _, version := range versions {
		t.Run(version, func(t *testing.T) {
			t.Parallel()
			t.Logf("seed %d", *seed)
			patches := together(t)
			late := 0
			for role, h := range rack(t, version, patches...) {
				want, masks := h.with(t, patches...)
				mender := h.mended(t, want, patches...)
				random := rand.New(rand.NewPCG(*seed, uint64(len(role))))
				made := 0
				for tries := 0; made < *changes; tries++ {
					if tries > 100**changes {
						t.Fatalf("%s took %d of %d changes", role, made, tries)
					}
					change := draw(t, random, want)
					waits, taken := h.byHand(t, string(role), mender, want, masks, change)
					if taken {
						made++
					}
					if taken && waits {
						late++
					}
				}
			}
			if late == 0 || late == 2**changes {
				t.Errorf("%d of %d changes need a reboot: there is only one kind", late, 2**changes)
			}
		})
	}
}

// byHand makes one change on a machine, which the controller mends, or else it is taken back. It tells whether the change needs a reboot, and whether it was
// one that Talos takes and that means something.
func (h *hollow) byHand(t *testing.T, role string, mender *mender, want []byte, masks machineconfig.Masks, made change) (waits, taken bool) {
	t.Helper()
	expected, err := machineconfig.Compare(want, made.text, masks)
	if err != nil || len(expected) == 0 {
		return false, false // what can't be read, or is the same in another form
	}
	late := len(machineconfig.NeedsReboot(expected, h.version)) > 0
	err = h.apply(t, made.text)
	switch {
	case err != nil && strings.Contains(err.Error(), "immediate mode"):
		if !late {
			t.Errorf("%s: %s: the machine needs a reboot for it, and Ichor says that it doesn't", role, made)
		}
		return true, true
	case err != nil:
		return false, false
	case late && strings.HasPrefix(h.version, "v1.13"):
		t.Errorf("%s: %s: the machine took it, and Ichor says that it needs a reboot", role, made)
	}
	drift := h.drift(t, want, masks)
	if len(drift) != 1 || drift[0].Document != made.document || !made.at(drift[0].Path.String()) {
		t.Errorf("%s: %s is the drift %+v", role, made, drift)
	}
	if err := mender.mend(t, h, late); err != nil {
		t.Errorf("%s: %s: %v", role, made, err)
	}
	for _, shown := range append(shownOf(drift), mender.said(t)) {
		for _, secret := range h.secrets() {
			if strings.Contains(shown, secret) {
				t.Errorf("%s: %s shows a secret", role, made)
			}
		}
	}
	if late {
		if err := h.apply(t, want); err != nil {
			t.Errorf("%s: %s isn't taken back: %v", role, made, err)
		}
	}
	if left := h.drift(t, want, masks); len(left) > 0 {
		t.Errorf("%s: %s was taken back, and leaves %+v", role, made, left)
	}
	return late, true
}

func shownOf(drift []machineconfig.Difference) []string {
	var shown []string
	for _, each := range drift {
		shown = append(shown, each.Want+each.Have)
	}
	return shown
}

// secrets are texts that are never to be seen.
func (h *hollow) secrets() []string {
	bundle := h.in.Bundle
	secrets := slices.Collect(maps.Values(documents.Secrets()))
	return append(secrets, bundle.TrustdInfo.Token, bundle.Secrets.BootstrapToken, bundle.Cluster.Secret, bundle.Secrets.SecretboxEncryptionSecret,
		string(bundle.Certs.OS.Key), string(bundle.Certs.K8s.Key), string(bundle.Certs.Etcd.Key))
}

// change is a configuration that somebody changed at one place.
type change struct {
	what, document, path string
	text                 []byte
}

func (c change) String() string { return c.what + " " + c.document + " " + c.path }

// at tells whether a path is that of the change, or of what went with it as a whole.
func (c change) at(path string) bool {
	rest, found := strings.CutPrefix(c.path, path)
	return found && (rest == "" || rest[0] == '.' || rest[0] == '[' || path == "")
}

// place is one where something can be changed: the member of an object or a list.
type place struct {
	document, path string
	within         any
	key            string
	index          int
}

// untouchable is what lets the test in, and what the machine is reached by.
var untouchable = []string{"apiVersion", "kind", "name", "machine.ca", "machine.type", "machine.token", "cluster.controlPlane", "version"}

// draw changes one place of a configuration.
func draw(t *testing.T, random *rand.Rand, text []byte) change {
	t.Helper()
	var values []any
	for reader := yaml.NewDecoder(bytes.NewReader(text)); ; {
		var value any
		if reader.Decode(&value) != nil {
			break
		}
		values = append(values, value)
	}
	var places []place
	for _, value := range values {
		fields, _ := value.(map[string]any)
		name := machineconfig.MainDocument
		if kind, ok := fields["kind"].(string); ok {
			name = kind
			if own, ok := fields["name"].(string); ok && own != "" {
				name += "/" + own
			}
		}
		collect(fields, name, "", &places)
	}
	at := places[random.IntN(len(places))]
	made := change{document: at.document}
	made.what, made.path = at.alter(random)
	var out bytes.Buffer
	writer := yaml.NewEncoder(&out)
	for _, value := range values {
		if err := writer.Encode(value); err != nil {
			t.Fatal(err)
		}
	}
	if err := writer.Close(); err != nil {
		t.Fatal(err)
	}
	made.text = out.Bytes()
	return made
}

// collect finds the places below a value, in a fixed order.
func collect(value any, document, path string, places *[]place) {
	if slices.Contains(untouchable, path) {
		return
	}
	switch value := value.(type) {
	case map[string]any:
		for _, key := range slices.Sorted(maps.Keys(value)) {
			below := strings.TrimPrefix(path+"."+key, ".")
			if !plain(key) {
				below = path + "[" + quoted(key) + "]"
			}
			if slices.Contains(untouchable, below) {
				continue
			}
			*places = append(*places, place{document: document, path: below, within: value, key: key})
			collect(value[key], document, below, places)
		}
	case []any:
		for i := range value {
			below := fmt.Sprintf("%s[%d]", path, i)
			if _, object := value[i].(map[string]any); !object {
				*places = append(*places, place{document: document, path: below, within: value, index: i})
			}
			collect(value[i], document, below, places)
		}
	}
}

func plain(key string) bool {
	return strings.IndexFunc(key, func(r rune) bool {
		return (r < 'a' || r > 'z') && (r < 'A' || r > 'Z') && (r < '0' || r > '9') && r != '_' && r != '-'
	}) < 0
}

func quoted(key string) string {
	text, err := json.Marshal(key)
	if err != nil {
		panic(err) // a text
	}
	return string(text)
}

// alter changes what is at the place: a plain value becomes another one, of a list the first element goes, and members of
// objects go now and then, objects always.
func (p place) alter(random *rand.Rand) (what, path string) {
	value := p.value()
	list, isList := value.([]any)
	_, isObject := value.(map[string]any)
	object, inObject := p.within.(map[string]any)
	switch {
	case inObject && (isObject || isList && len(list) == 0 || random.IntN(3) == 0):
		delete(object, p.key)
		return "without", p.path
	case isList:
		p.set(list[1:])
		return "without", p.path + "[0]"
	default:
		p.set(other(value, random))
		return "another", p.path
	}
}

func (p place) value() any {
	if object, ok := p.within.(map[string]any); ok {
		return object[p.key]
	}
	return p.within.([]any)[p.index]
}

func (p place) set(value any) {
	if object, ok := p.within.(map[string]any); ok {
		object[p.key] = value
		return
	}
	p.within.([]any)[p.index] = value
}

// other is a plain value unlike the one that is there.
func other(value any, random *rand.Rand) any {
	switch value := value.(type) {
	case bool:
		return !value
	case int:
		return value + 1 + random.IntN(9)
	case string:
		for i := len(value) - 1; i >= 0; i-- {
			if value[i] >= '0' && value[i] < '9' {
				return value[:i] + string(value[i]+1) + value[i+1:]
			}
		}
		return value + "x"
	}
	return value
}
