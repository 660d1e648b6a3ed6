// SPDX-License-Identifier: Apache-2.0

package artifacts_test

import (
	"encoding/json"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	"sigs.k8s.io/yaml"
)

var ourMetric = regexp.MustCompile("ichor_[a-z_]+")

// knownMetrics tells whether an expression is over metrics of Ichor's, all of which docs/metrics.md has.
func knownMetrics(t *testing.T, where, expression string) bool {
	t.Helper()
	documented, err := os.ReadFile(filepath.Join("..", "docs", "metrics.md"))
	if err != nil {
		t.Fatal(err)
	}
	names := ourMetric.FindAllString(expression, -1)
	for _, name := range names {
		if !strings.Contains(string(documented), "`"+name+"`") {
			t.Errorf("%s: there is no metric %s in docs/metrics.md", where, name)
		}
	}
	return len(names) > 0
}

// An alert over a metric that isn't there, or is called otherwise, never fires.
func TestAlertsAreOverMetricsThatAreDocumented(t *testing.T) {
	t.Parallel()
	text, err := os.ReadFile(filepath.Join("monitoring", "alerts.yaml"))
	if err != nil {
		t.Fatal(err)
	}
	var rules struct {
		Spec struct {
			Groups []struct {
				Name  string `json:"name"`
				Rules []struct {
					Alert       string            `json:"alert"`
					Expr        string            `json:"expr"`
					For         string            `json:"for"`
					Labels      map[string]string `json:"labels"`
					Annotations map[string]string `json:"annotations"`
				} `json:"rules"`
			} `json:"groups"`
		} `json:"spec"`
		APIVersion string         `json:"apiVersion"`
		Kind       string         `json:"kind"`
		Metadata   map[string]any `json:"metadata"`
	}
	if err := yaml.UnmarshalStrict(text, &rules); err != nil {
		t.Fatal(err)
	}
	alerts := 0
	for _, group := range rules.Spec.Groups {
		for _, rule := range group.Rules {
			alerts++
			if !knownMetrics(t, rule.Alert, rule.Expr) || rule.Annotations["summary"] == "" || rule.Annotations["description"] == "" || rule.Labels["severity"] == "" {
				t.Errorf("alert %s lacks something: %+v", rule.Alert, rule)
			}
		}
	}
	if alerts == 0 {
		t.Error("there are no alerts")
	}
}

func TestTheDashboardIsOverMetricsThatAreDocumented(t *testing.T) {
	t.Parallel()
	text, err := os.ReadFile(filepath.Join("monitoring", "dashboard.json"))
	if err != nil {
		t.Fatal(err)
	}
	var dashboard struct {
		UID    string `json:"uid"`
		Title  string `json:"title"`
		Panels []struct {
			ID      int                            `json:"id"`
			Type    string                         `json:"type"`
			Title   string                         `json:"title"`
			GridPos struct{ H, W, X, Y int }       `json:"gridPos"`
			Targets []struct{ Expr, RefID string } `json:"targets"`
		} `json:"panels"`
	}
	if err := json.Unmarshal(text, &dashboard); err != nil {
		t.Fatal(err)
	}
	ours, ids := 0, map[int]bool{}
	for _, panel := range dashboard.Panels {
		if ids[panel.ID] || panel.Title == "" || panel.GridPos.X+panel.GridPos.W > 24 || (len(panel.Targets) == 0) != (panel.Type == "row") {
			t.Errorf("panel %d (%s) has another's id, no title, no query, or no place", panel.ID, panel.Title)
		}
		ids[panel.ID] = true
		for _, target := range panel.Targets {
			if knownMetrics(t, panel.Title, target.Expr) {
				ours++
			}
		}
	}
	if dashboard.UID == "" || dashboard.Title == "" || ours == 0 {
		t.Errorf("the dashboard %q (%s) has %d queries of Ichor's own metrics", dashboard.Title, dashboard.UID, ours)
	}
}
