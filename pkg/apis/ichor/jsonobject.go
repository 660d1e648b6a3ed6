// SPDX-License-Identifier: Apache-2.0

package ichor

import (
	"bytes"
	"encoding/json"
)

// JSONObject is a JSON object whose fields Ichor doesn't define.
type JSONObject struct {
	// Raw is the object's JSON text; empty when there is none.
	Raw []byte
}

// CanonicalJSON is a JSON object with sorted keys and without white space, so that the same object in another spelling is
// the same text. The named members are left out where they are empty texts. What is no object stays as it is; validation
// tells of it.
func CanonicalJSON(raw []byte, omitEmpty ...string) []byte {
	decoder := json.NewDecoder(bytes.NewReader(raw))
	decoder.UseNumber()
	var object map[string]any
	if err := decoder.Decode(&object); err != nil || object == nil {
		return raw
	}
	for _, name := range omitEmpty {
		if text, ok := object[name].(string); ok && text == "" {
			delete(object, name)
		}
	}
	canonical, err := json.Marshal(object)
	if err != nil {
		return raw
	}
	return canonical
}
