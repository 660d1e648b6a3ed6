// SPDX-License-Identifier: Apache-2.0

package machineconfig

import (
	"encoding/json"
	"errors"
	"fmt"
	"strconv"
	"strings"
)

// pointer is a JSON pointer of spec.secretValues, taken apart: which part of the patch it leads into, and where there.
type pointer struct {
	// section is "machine" or "cluster", empty for a document.
	section string
	// kind and name are the document's.
	kind, name string
	steps      []string
}

// parsePointer takes a JSON pointer (RFC 6901) below spec apart: /machine/…, /cluster/… or /documents/KIND/NAME/…
func parsePointer(text string) (pointer, error) {
	parts := strings.Split(text, "/")
	if parts[0] != "" {
		return pointer{}, errors.New("must begin with a slash")
	}
	parts = parts[1:]
	for i, part := range parts {
		parts[i] = strings.ReplaceAll(strings.ReplaceAll(part, "~1", "/"), "~0", "~")
	}
	switch {
	case len(parts) > 1 && (parts[0] == "machine" || parts[0] == "cluster"):
		return pointer{section: parts[0], steps: parts[1:]}, nil
	case len(parts) > 3 && parts[0] == "documents":
		return pointer{kind: parts[1], name: parts[2], steps: parts[3:]}, nil
	}
	return pointer{}, errors.New("must lead to a field below /machine, /cluster or /documents/KIND/NAME")
}

// keys lead to the field in its document.
func (p pointer) keys() []string {
	if p.section == "" {
		return p.steps
	}
	return append([]string{p.section}, p.steps...)
}

// document names the document that the pointer leads into.
func (p pointer) document() string { return documentName(p.kind, p.name) }

// fill puts a text at a place in a JSON object. Objects on the way are made where they are missing, elements of lists must
// be there.
func fill(raw []byte, steps []string, text string) ([]byte, error) {
	var root any = map[string]any{}
	if len(raw) > 0 {
		if err := json.Unmarshal(raw, &root); err != nil {
			return nil, errors.New("the part that it leads into is no object")
		}
	}
	if err := fillIn(root, steps, text); err != nil {
		return nil, err
	}
	filled, err := json.Marshal(root)
	if err != nil {
		return nil, errors.New("the part that it leads into can't be written")
	}
	return filled, nil
}

func fillIn(at any, steps []string, text string) error {
	step, last := steps[0], len(steps) == 1
	switch at := at.(type) {
	case map[string]any:
		if last {
			if _, there := at[step]; there {
				return fmt.Errorf("%s has a value already", step)
			}
			at[step] = text
			return nil
		}
		if at[step] == nil {
			at[step] = map[string]any{}
		}
		return fillIn(at[step], steps[1:], text)
	case []any:
		index, err := strconv.Atoi(step)
		if err != nil || index < 0 || index >= len(at) {
			return fmt.Errorf("%s is no element of the list, which has %d", step, len(at))
		}
		if last {
			at[index] = text
			return nil
		}
		return fillIn(at[index], steps[1:], text)
	default:
		return fmt.Errorf("%s can't lie below a plain value", step)
	}
}
