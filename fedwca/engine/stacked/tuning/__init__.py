"""Other ways to carry out steps: recorded ones, and a choice by measurement."""
