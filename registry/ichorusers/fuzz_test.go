// SPDX-License-Identifier: Apache-2.0

package ichorusers

import (
	"bytes"
	"net/http/httptest"
	"strings"
	"testing"
)

// FuzzReadPassword reads bytes as the body that sets a password. No error quotes what was sent.
func FuzzReadPassword(f *testing.F) {
	for _, text := range []string{
		`{"password":"correct horse battery staple"}`, `{"password":1}`, `{"password":"a","password":"horse"}`, `["horse"]`, `horse`, `{"Password":"horse"}`,
		`{"password":"horse"} x`, `{"password":"\ud800horse"}`, "", "null", strings.Repeat("[", 9000) + "horse",
	} {
		f.Add([]byte(text))
	}
	f.Fuzz(func(t *testing.T, body []byte) {
		request := httptest.NewRequest("PUT", "/", bytes.NewReader(body))
		request.Header.Set("Content-Type", "application/json")
		password, err := readPassword(httptest.NewRecorder(), request)
		if err != nil && (password != "" || strings.Contains(err.Error(), "horse")) {
			t.Errorf("%q: %q, %v", body, password, err)
		}
	})
}

// FuzzVerifyPassword reads bytes as a stored hash: it fits only if it is whole, and costs no more than is allowed.
func FuzzVerifyPassword(f *testing.F) {
	stored, err := hashPassword(f.Context(), "correct horse", quick)
	if err != nil {
		f.Fatal(err)
	}
	f.Add(stored)
	f.Add("$argon2id$v=19$m=64,t=1,p=0$AAAA$AAAA")
	f.Add("$argon2id$v=19$m=64,t=1,p=1$$")
	f.Fuzz(func(t *testing.T, text string) {
		// A cost that is allowed and high is none of this target's.
		if strings.Contains(text, "m=") && !strings.Contains(text, "m=64,t=1,p=1$") && !strings.Contains(text, "p=0") {
			return
		}
		fits, err := verifyPassword(t.Context(), "another horse", text)
		if fits || err != nil && strings.Contains(err.Error(), "horse") {
			t.Errorf("%q fits: %t, %v", text, fits, err)
		}
	})
}
