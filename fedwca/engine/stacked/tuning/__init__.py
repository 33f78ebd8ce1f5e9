"""Other ways to carry out training steps: recorded ones, and a choice by measurement."""
