// SPDX-License-Identifier: Apache-2.0

package ichor

// JSONObject is a JSON object whose fields Ichor doesn't define.
type JSONObject struct {
	// Raw is the object's JSON text; empty when there is none.
	Raw []byte
}
